# Serves a model over HTTP, on port 8501, without TensorFlow. The model is
# trained here, in the folder mrpc_output, or is a release:
#
#   docker build --build-arg MODEL=mrpc_output -t bert-serve .
#   docker run -p 8501:8501 bert-serve
FROM python:3.12-slim AS export
WORKDIR /bert
COPY . .
RUN pip install --no-cache-dir '.[export]' && pip wheel --no-deps -w /wheel .
ARG MODEL
RUN bert-export --model_dir="$MODEL" --output_dir=/model --format=onnx

FROM python:3.12-slim
COPY requirements-runtime.txt /
RUN pip install --no-cache-dir -r requirements-runtime.txt
COPY --from=export /wheel /wheel
RUN pip install --no-cache-dir --no-deps /wheel/*.whl
COPY --from=export /model /model
USER nobody
EXPOSE 8501
CMD ["bert-serve", "--model_dir=/model", "--host=0.0.0.0", "--port=8501"]
