#!/bin/sh
# Makes what both nodes need, in made/: keys, published documents, certificates. It runs in the image,
# by podman or what RUN names, such as docker, with RUN_OPTIONS; or with the program that TRAPEZOID names.
set -eu
cd "$(dirname "$0")"
[ -n "${TRAPEZOID:-}" ] || exec "${RUN:-podman}" run --rm --user 0 --network none --entrypoint sh -e TRAPEZOID=trapezoid \
    -v "$PWD:/here" -w /here ${RUN_OPTIONS:-} localhost/trapezoid prepare.sh
umask 077
mkdir made
for domain in a.example b.example; do
    "$TRAPEZOID" keys init "$domain" --keys "made/$domain/keys"
    "$TRAPEZOID" publish "$domain" --keys "made/$domain/keys" --site "made/$domain/site" --url "https://$domain:8444"
    "$TRAPEZOID" keys tls init "$domain" --tls "made/$domain/tls"
    cp "$domain/node.toml" "made/$domain"
done
for domain in a.example b.example; do
    cat made/a.example/tls/ca.pem made/b.example/tls/ca.pem >"made/$domain/authorities.pem"
    # What signs roots and stubs is not for the node, and neither is the authority.
    mkdir -p "made/offline/$domain"
    mv "made/$domain/keys/root-"* "made/$domain/keys/pkg-"* "made/$domain/tls/ca.key.pem" "made/offline/$domain"
done
# The node in the container is the user 10001.
[ "$(id -u)" != 0 ] || chown -R 10001 made/a.example made/b.example
