# campus as an image, as docs/containers.md runs it: the shipped campus.toml; its databases in the volume /srv/campus/data.
ARG PYTHON=docker.io/library/python:3.13-slim-bookworm

FROM ${PYTHON} AS build
WORKDIR /src
RUN python3 -m venv /opt/campus
COPY requirements.txt .
RUN /opt/campus/bin/pip install --no-cache-dir --require-hashes --only-binary :all: --no-binary oncalendar --no-deps -r requirements.txt
COPY . .
RUN /opt/campus/bin/pip install --no-cache-dir --no-deps . && rm -r /opt/campus/lib/python3*/site-packages/pip*

FROM ${PYTHON}
COPY --from=build /opt/campus /opt/campus
COPY campus.toml /srv/campus/
RUN install -d -o 10001 -g 10001 -m 700 /srv/campus/data
USER 10001:10001
WORKDIR /srv/campus
VOLUME /srv/campus/data
ENV PATH=/opt/campus/bin:$PATH PYTHONDONTWRITEBYTECODE=1
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python3", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["campus"]
CMD ["serve", "--host", "0.0.0.0", "--admin", "127.0.0.1:9100", "--log-format", "json"]
