# cafexai serve and cafexai batch on the CPU, as a user without rights:
#   docker build -t cafexai .
#   docker run -p 8080:8080 -v "$PWD/model:/model:ro" cafexai serve /model/model.onnx --host 0.0.0.0 --port 8080
#   docker run --no-healthcheck -v "$PWD:/data" cafexai batch /data/in.parquet s3://bucket/out --model /data/model.onnx
# Files that can run code (.pt2, .pt, .pkl, .joblib) need --trust as well.
FROM python:3.11-slim-bookworm AS build
WORKDIR /build
COPY release/locks/build.txt release/locks/image.txt ./
RUN pip install --no-cache-dir --require-hashes --requirement build.txt \
    && python -m venv /opt/cafexai \
    && /opt/cafexai/bin/pip install --no-cache-dir --require-hashes --requirement image.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/cafexai/bin/pip install --no-cache-dir --no-deps dist/*.whl

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --create-home cafexai
COPY --from=build /opt/cafexai /opt/cafexai
ENV PATH=/opt/cafexai/bin:$PATH
USER 10001
WORKDIR /home/cafexai
EXPOSE 8080
HEALTHCHECK --start-period=60s --interval=10s --timeout=5s CMD ["python", "-c", "\
import http.client; \
server = http.client.HTTPConnection('127.0.0.1', 8080, timeout=4); \
server.request('GET', '/v2/health/live'); \
raise SystemExit(server.getresponse().status != 200)"]
ENTRYPOINT ["cafexai"]
CMD ["--help"]
