# A notebook server for JupyterHub's users, and for `pathways-jupyter lab up`. `make dist` makes the wheel:
#   docker build --file docs/singleuser.Dockerfile --build-arg JAX=0.10.2 --tag REPOSITORY/notebook:1 dist
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

# Of the service's images; `pathways-jupyter doctor` compares them.
ARG JAX=0.10.2
# Of the hub: the first two numbers have to agree.
ARG JUPYTERHUB=5.4

COPY pathways_jupyter-*.whl /tmp/
RUN pip install --no-cache-dir "$(echo /tmp/pathways_jupyter-*.whl)[lab]" "jax==${JAX}" "jupyterhub==${JUPYTERHUB}.*" \
    && useradd --uid 1000 --create-home jovyan

USER 1000
WORKDIR /home/jovyan
CMD ["jupyterhub-singleuser"]
