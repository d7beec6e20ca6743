# syntax=docker/dockerfile:1
# The commands in an image. Without a command it runs the quick start:
#
#   docker build -t transformer-mt .                                          # CPU
#   docker build -t transformer-mt:cuda --build-arg TORCH_BACKEND=cu130 .     # CUDA 13.0
#   docker run --rm -v "$PWD/runs:/work/runs" --user "$(id -u):$(id -g)" transformer-mt
#   docker run --rm -i --gpus all -v "$PWD/runs:/work/runs" transformer-mt:cuda \
#     mt-translate model=runs/quickstart < in.en
#
# Training on several GPUs needs more shared memory than Docker's 64 MB: docker run --ipc=host …
#
# TORCH_BACKEND is a value of `uv pip install --torch-backend`. The CUDA libraries come with torch, so
# that one small base image does for both; the host needs only NVIDIA's driver and container toolkit.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS install
ARG UV=0.13.9
RUN pip install --no-cache-dir uv==${UV}
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy
RUN uv venv /opt/venv
WORKDIR /src
ARG TORCH=2.13.0
ARG TORCH_BACKEND=cpu
# The dependencies first: a change of the code keeps these layers.
COPY pyproject.toml ./
COPY scripts/constraints.txt scripts/
RUN --mount=type=cache,target=/root/.cache/uv \
    uv pip install --python /opt/venv --torch-backend "${TORCH_BACKEND}" \
    --constraint scripts/constraints.txt "torch==${TORCH}" -r pyproject.toml --extra fast
COPY . .
RUN --mount=type=cache,target=/root/.cache/uv \
    uv pip install --python /opt/venv --no-deps .

FROM python:${PYTHON}-slim
# torch.compile builds its kernels with g++.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 1000 --home-dir /cache user && install --directory --mode 777 /work /cache
COPY --from=install /opt/venv /opt/venv
# HOME can be written by whatever --user says.
ENV PATH=/opt/venv/bin:$PATH HOME=/cache USER=user
USER 1000
WORKDIR /work
CMD ["mt-train", "experiment=quickstart"]
