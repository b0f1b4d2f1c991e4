# dspark-calib on a CPU: collection on small models, and everything that reads a trace.
#   docker build -t dspark-calib .
#   docker run --rm -v "$PWD:/data" dspark-calib fit-sts
# A GPU image differs in the torch wheel alone: --build-arg PIP_INSTALL_ARGS="--index-url …"
FROM python:3.12-slim AS build
ARG PIP_INSTALL_ARGS=""
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY dspark_calib dspark_calib
COPY cli cli
COPY reports reports
RUN python -m venv /opt/dspark-calib \
 && /opt/dspark-calib/bin/pip install --no-cache-dir --only-binary :all: $PIP_INSTALL_ARGS --constraint constraints.txt ".[collect]"

FROM python:3.12-slim
LABEL org.opencontainers.image.title="dspark-calib" org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/dspark-calib /opt/dspark-calib
RUN useradd --create-home calib
ENV PATH="/opt/dspark-calib/bin:$PATH" PYTHONUNBUFFERED=1
USER calib
WORKDIR /data
ENTRYPOINT ["dspark-calib"]
CMD ["--help"]
