# cafexai serve and cafexai batch on the CPU, as a user without rights:
#   docker build -t cafexai .
#   docker run -p 8080:8080 -v "$PWD/model:/model:ro" cafexai serve /model/model.pt2 --host 0.0.0.0 --port 8080
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
ENTRYPOINT ["cafexai"]
CMD ["--help"]
