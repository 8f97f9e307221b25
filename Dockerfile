# Serves a model folder over HTTP, on port 8501:
#
#   docker build -t bert-serve .
#   docker run -p 8501:8501 -v /tmp/mrpc_output:/model:ro bert-serve
FROM python:3.12-slim
WORKDIR /bert
COPY . .
RUN pip install --no-cache-dir '.[serve]'
USER nobody
EXPOSE 8501
CMD ["bert-serve", "--model_dir=/model", "--host=0.0.0.0", "--port=8501"]
