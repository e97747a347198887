#!/bin/sh
# Leaves out of an installed interpreter and its packages what no daemon or command imports: trim.sh PREFIX
#
# Tests, sources and headers of compiled parts, type stubs, debug information, what installs and documents packages, and
# parts of libraries that nothing here has a use for. scikit-learn stays whole but for its example data, as estimators that
# a site adds may use any of it. The build imports everything and trains every estimator afterwards: deploy/containers/exercise.py.
set -eu

cd "$1"
rm -rf include share lib/pkgconfig bin/*-config bin/2to3* bin/idle* bin/pip* bin/pydoc* bin/f2py bin/numpy-config
cd lib/python3.*
# East Asian character sets, as those of the C library (slim.sh): names and output are UTF-8.
rm -rf config-* curses dbm distutils ensurepip idlelib lib2to3 pydoc_data tkinter turtledemo turtle.py venv xmlrpc \
    lib-dynload/_test* lib-dynload/_ctypes_test* lib-dynload/_xxtest* lib-dynload/xxlimited* lib-dynload/_tkinter* \
    lib-dynload/_curses* lib-dynload/_dbm* lib-dynload/_gdbm* lib-dynload/_codecs_* lib-dynload/_multibytecodec*

cd site-packages
find .. -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +
find . -type f \( -name '*.pyi' -o -name '*.pxd' -o -name '*.pyx' -o -name '*.pxi' -o -name '*.tp' -o -name '*.c' \
    -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp' -o -name '*.a' -o -name '*.f90' -o -name '*.rst' \) -delete
rm -rf numpy/_core/include numpy/_core/_simd.*.so numpy/_core/*_tests.*.so numpy/distutils \
    scipy/cluster scipy/datasets scipy/io scipy/misc scipy/odr scipy/signal scipy/stats/_unuran/*.so \
    scipy/*/_test*.so scipy/*/_c*test.*.so sklearn/datasets/data sklearn/datasets/images sklearn/datasets/descr \
    sqlalchemy/testing sqlalchemy/orm sqlalchemy/ext sqlalchemy/dialects/mssql sqlalchemy/dialects/mysql sqlalchemy/dialects/oracle
# Wheels bring the same library along, each its own; the loader takes what has been loaded under the name already.
for library in numpy.libs/*; do
    twin=scipy.libs/${library##*/}
    if [ -f "$twin" ] && cmp -s "$library" "$twin"; then ln -sf "../$library" "$twin"; fi
done
# Not the libraries that wheels bring along (*.libs): their tools have rearranged them, which strip does not bear.
find ../.. -type f \( -name '*.so' -o -name '*.so.*' \) ! -path '*.libs/*' -exec strip --strip-unneeded {} +
