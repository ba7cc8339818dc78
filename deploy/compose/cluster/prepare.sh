#!/bin/sh
# Makes what the nodes and PostgreSQL need, in made/: keys, documents, certificates, a password, the key of the cluster. It runs in the image,
# by podman or what RUN names, such as docker, with RUN_OPTIONS; or with the program that TRAPEZOID names.
set -eu
cd "$(dirname "$0")"
[ -n "${TRAPEZOID:-}" ] || exec "${RUN:-podman}" run --rm --user 0 --network none --entrypoint sh -e TRAPEZOID=trapezoid \
    -v "$PWD:/here" -w /here ${RUN_OPTIONS:-} localhost/trapezoid prepare.sh
umask 077
mkdir made
"$TRAPEZOID" keys init a.example --keys made/etc/keys
"$TRAPEZOID" publish a.example --keys made/etc/keys --site made/etc/site --url https://a.example:8444
"$TRAPEZOID" keys tls init a.example --tls made/etc/tls
cp node.toml made/etc
mkdir made/offline
mv made/etc/keys/root-* made/etc/keys/pkg-* made/etc/tls/ca.key.pem made/offline
head -c 32 /dev/urandom >made/etc/cluster.key
head -c 24 /dev/urandom | base64 | tr -d '\n' >made/engine-password
cp made/engine-password made/etc
# The node in the container is the user 10001; PostgreSQL reads its password as root.
[ "$(id -u)" != 0 ] || chown -R 10001 made/etc
