#!/bin/sh
# Leaves out of installed packages what no daemon or command imports: trim.sh SITE-PACKAGES
#
# Tests, sources and headers of compiled parts, type stubs, debug information, and parts of numerical libraries that the
# estimator has no use for. The image's build imports everything that is used afterwards, so what is missed is noticed.
set -eu

cd "$1"
find . -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +
find . -type f \( -name '*.pyi' -o -name '*.pxd' -o -name '*.pyx' -o -name '*.pxi' -o -name '*.tp' -o -name '*.c' \
    -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp' -o -name '*.a' -o -name '*.f90' -o -name '*.rst' \) -delete
rm -rf numpy/_core/include sqlalchemy/testing sklearn/datasets/data sklearn/datasets/images \
    sklearn/datasets/descr numpy/distutils scipy/cluster scipy/datasets scipy/io scipy/misc scipy/odr scipy/signal
# Not the libraries that wheels bring along (*.libs): their tools have rearranged them, which strip does not bear.
find . -name '*.so' ! -path './*.libs/*' -exec strip --strip-debug {} +
