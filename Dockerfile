# One image for all daemons and commands of a cluster: docs/guide/cluster-in-containers.md
#
#   docker build -t eslurm .
#   docker run --rm eslurm esctld --help
#
# `eslurm-container DAEMON` is the entry point of every daemon: see deploy/containers/entry.sh.

# What is laid at /usr/local: the interpreter, its packages, ours; without what nobody imports.
FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils >/dev/null
WORKDIR /src
# Dependencies first: they change seldom. Locked, and checked by hash.
COPY requirements/image.txt requirements/build.txt requirements/
COPY deploy/containers/trim.sh ./
RUN --mount=type=cache,target=/root/.cache/pip \
    cp -a /usr/local /install \
 && rm -rf /install/lib/python3.11/site-packages/* \
 && pip install --quiet --no-compile --prefix=/install --require-hashes -r requirements/image.txt \
 && pip install --quiet --require-hashes -r requirements/build.txt \
 && sh trim.sh /install
COPY LICENSE README.md pyproject.toml ./
COPY eslurm eslurm
COPY daemons daemons
COPY cli cli
RUN pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir /wheel . \
 && pip install --quiet --no-compile --no-deps --no-index --prefix=/install /wheel/*.whl

# What is below it: the base, without what nothing here needs.
FROM python:3.11-slim AS base
# Daemons run as `eslurm`; agents start what jobs are made of as its user. Two users to try it with.
RUN useradd --system --uid 990 --no-create-home --shell /usr/sbin/nologin eslurm \
 && useradd --uid 1000 --create-home --shell /bin/bash ada \
 && useradd --uid 1001 --create-home --shell /bin/bash ben \
 && install -d -o eslurm -g eslurm /run/eslurm /var/lib/eslurm /etc/eslurm
RUN --mount=type=bind,source=deploy/containers/slim.sh,target=/tmp/slim.sh sh /tmp/slim.sh

# From nothing, for what a layer takes away the layers below it still carry.
FROM scratch
COPY --from=base / /
COPY --from=build /install /usr/local
COPY --chmod=755 deploy/containers/entry.sh /usr/local/bin/eslurm-container
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
# Everything that daemons and commands import is imported once, so that nobody has to compile it again. The learning part
# is compiled at each start: it starts seldom, and its bytecode is large.
RUN --mount=type=bind,source=deploy/containers/exercise.py,target=/tmp/exercise.py \
    ldconfig \
 && python -c 'import esctld.roles, esctld.__main__, essatd.daemon, essatd.__main__, esnoded.daemon, esnoded.__main__, \
        esnoded.stepd.__main__, esnoded.stepd.supervisor, eslurm.store.sql, psycopg, uvloop, escli.local.main, escli.admin.esctl' \
 && for command in 'eslurm health' essubmit esqueue escancel esinfo esacct esctl esrun eswait eswhy; do $command --help >/dev/null || exit 1; done \
 && PYTHONDONTWRITEBYTECODE=1 python /tmp/exercise.py \
 && find / -xdev -name __pycache__ -type d -empty -delete
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
ENTRYPOINT ["eslurm-container"]
CMD ["eslurm", "--help"]
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --start-interval=1s CMD ["eslurm", "health", "127.0.0.1:9464"]
