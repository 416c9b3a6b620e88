# The calculator:         docker build -t wpriv . && docker run --rm wpriv budget --mech gauss --sigma 4 --delta 1e-5
# Training too, on CPUs:  docker build -t wpriv --build-arg EXTRAS=train .
# Files of yours:         docker run --rm -v "$PWD:/work" wpriv budget plan.wpriv.yaml --max-eps 3
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY wpriv wpriv
COPY recipes recipes
COPY docs/glossary.md docs/glossary.md
RUN pip wheel --no-deps --wheel-dir dist .

FROM python:3.13-slim
ARG EXTRAS=""
ARG TORCH_INDEX="https://download.pytorch.org/whl/cpu"
COPY --from=build /src/dist /tmp/dist
RUN case "$EXTRAS" in *train*) pip install --no-cache-dir torch --index-url "$TORCH_INDEX";; esac
RUN pip install --no-cache-dir "$(echo /tmp/dist/*.whl)${EXTRAS:+[$EXTRAS]}"
RUN useradd --create-home wpriv
USER wpriv
WORKDIR /work
ENTRYPOINT ["wpriv"]
CMD ["--help"]
