# A model folder behind the HTTP API and page of `classnorm serve`. See docs/serving.md for how to run it:
# without root, with a read-only file system and the token in the environment.
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
# PyTorch without CUDA first, so that nothing pulls the build with it, which is ten times as large.
RUN python -m venv /opt/classnorm \
    && /opt/classnorm/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu \
        "$(grep '^torch==' constraints.txt)" \
    && /opt/classnorm/bin/pip install --no-cache-dir -c constraints.txt '.[images,onnx,serve,text]'

FROM python:3.11-slim
COPY --from=build /opt/classnorm /opt/classnorm
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin classnorm \
    && mkdir -p /models /saved /state \
    && chown classnorm:classnorm /saved /state
USER classnorm
ENV PATH=/opt/classnorm/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    CLASSNORM_CACHE=/tmp/classnorm \
    MPLCONFIGDIR=/tmp/matplotlib \
    HF_HUB_OFFLINE=1
EXPOSE 8000
VOLUME ["/saved", "/state"]
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["classnorm", "serve", "--host", "0.0.0.0", "--models", "/saved", "--state", "/state"]
CMD ["/models/model"]
