# docker build -t regard .
# docker run -p 5000:5000 -v ./runs/en-fr:/models/en-fr:ro regard /models/en-fr
FROM python:3.12-slim
RUN useradd --create-home --uid 1000 regard
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
# the second index has torch without CUDA, which is 2 GB smaller
RUN pip install --no-cache-dir -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu ".[serve,fast]"
USER 1000
EXPOSE 5000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5000/health/ready', timeout=5)"]
ENTRYPOINT ["regard", "serve", "--host", "0.0.0.0"]
CMD ["--help"]
