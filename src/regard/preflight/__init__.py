"""The data report: is a corpus fit to train on, and what should be fixed first?"""
