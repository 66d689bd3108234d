# One static program, and what goes with it: its licences, a list of all that is in it,
# and the authorities that it trusts. `make image` builds it, with the version and
# commit; docker, podman and buildah all do.
#
# BUILDER needs Go, a shell and coreutils, and certificates of authorities. Nothing of
# BASE is needed; another one is for sites whose scanners want to see a distribution.
ARG BUILDER=docker.io/library/golang:1.26
ARG BASE=scratch

FROM ${BUILDER} AS build
# For sites that fetch modules from elsewhere. Arguments of a stage that isn't shipped
# leave no trace in the image.
ARG GOPROXY
ARG GONOSUMDB
ARG GOFLAGS
ARG SBOM_TOOL=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
# .dockerignore leaves only what the program is built from.
COPY . .
ARG VERSION=(devel)
ARG COMMIT
ARG COMMIT_TIME
ARG MODIFIED
# Nothing of the machine, the path or the time gets into the program: the same commit
# gives the same bytes.
RUN stamp=github.com/sickbay-dev/sickbay/cmd && \
    CGO_ENABLED=0 GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false \
      -ldflags "-s -w -X ${stamp}.stampedVersion=${VERSION} -X ${stamp}.stampedCommit=${COMMIT} -X ${stamp}.stampedTime=${COMMIT_TIME} -X ${stamp}.stampedModified=${MODIFIED}" \
      -o /out/usr/bin/sickbay .
# Every module that is linked into it, as CycloneDX; and their licences, as they ask for.
RUN doc=/out/usr/share/doc/sickbay && mkdir -p ${doc}/licenses && \
    CGO_ENABLED=0 go run ${SBOM_TOOL} bin -json -std -noserial -notimestamp -version "${VERSION}" -output ${doc}/sbom.cdx.json /out/usr/bin/sickbay && \
    cp LICENSE ${doc}/LICENSE && \
    cp "$(go env GOROOT)/LICENSE" ${doc}/licenses/go.LICENSE && \
    go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' . | sort -u | while read -r path dir; do \
      mkdir -p "${doc}/licenses/${path}" && \
      find "${dir}" -maxdepth 1 -type f '(' -iname 'LICEN[CS]E*' -o -iname 'NOTICE*' -o -iname 'COPYING*' -o -iname 'PATENTS*' ')' \
        -exec cp '{}' "${doc}/licenses/${path}/" ';' && \
      test -n "$(ls "${doc}/licenses/${path}")" || echo "${path} comes without a licence file." >"${doc}/licenses/${path}/NONE"; \
    done && \
    chmod -R u=rwX,go=rX /out/usr
# A name for the number, for programs that ask for one.
RUN mkdir -p /out/etc/ssl/certs && \
    cp /etc/ssl/certs/ca-certificates.crt /out/etc/ssl/certs/ && \
    echo 'sickbay:x:65532:65532:Sickbay:/:/sbin/nologin' >/out/etc/passwd && \
    echo 'sickbay:x:65532:' >/out/etc/group && \
    chmod -R u=rwX,go=rX /out/etc

FROM ${BASE}
ARG VERSION=(devel)
ARG COMMIT
ARG COMMIT_TIME
LABEL org.opencontainers.image.title="Sickbay" \
      org.opencontainers.image.description="Governs the health of accelerators in a multi-tenant Kubernetes cluster" \
      org.opencontainers.image.source="https://github.com/sickbay-dev/sickbay" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.created="${COMMIT_TIME}"
COPY --from=build /out/ /
# By number: runAsNonRoot can't tell of a name whether it is root's.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/usr/bin/sickbay"]
