"""Training: the loop, its objectives, its optimizer, and what it writes down."""
