"""Builds memprof._core. Developer switches (environment): MEMPROF_DEBUG=1,
MEMPROF_SANITIZE=address,undefined or thread, MEMPROF_WERROR=1."""

import os
from pathlib import Path

import numpy
from setuptools import Extension, setup

ROOT = Path(__file__).parent
compile_args = [
    "-std=gnu11",
    "-fvisibility=hidden",
    "-fexceptions",  # torch's C++ exceptions pass through the allocator hooks
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
    "-Wvla",
    "-Wno-unused-parameter",
    "-Wno-cast-function-type",
]
link_args = ["-Wl,-z,nodelete", "-pthread"]  # hooks may run after the module is gone

if os.environ.get("MEMPROF_DEBUG"):
    compile_args += ["-O0", "-g3", "-DMEMPROF_DEBUG"]
else:
    compile_args += ["-O2", "-g1"]
if os.environ.get("MEMPROF_WERROR"):
    compile_args.append("-Werror")
if sanitize := os.environ.get("MEMPROF_SANITIZE"):
    compile_args += [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer"]
    link_args.append(f"-fsanitize={sanitize}")

setup(
    ext_modules=[
        Extension(
            "memprof._core",
            sources=sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("csrc/**/*.c")),
            depends=sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("csrc/**/*.h")),
            include_dirs=["csrc", numpy.get_include()],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"), ("_GNU_SOURCE", "1")],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
            libraries=["dl", "m"],
        )
    ]
)
