"""GOT slots of libraries shaped like torch's, bound lazily and at once, with and without
the sanitizers: tests/fakes/patch_program.c checks what is recorded and what is left."""

import pytest
from test_c_units import CSRC, FLAGS, FLAVOURS, ROOT, checked, compiler_for, runtime_works

FAKES = ROOT / "tests" / "fakes"
SOURCES = [
    *sorted(CSRC.glob("base/*.c")),
    CSRC / "record/budget.c",
    CSRC / "record/intern.c",
    CSRC / "record/thread_log.c",
    CSRC / "collect/elf_patch.c",
    CSRC / "collect/torch_alloc.c",
    CSRC / "collect/torch_symbols.c",
]
BINDINGS = {
    "lazy": ["-Wl,-z,lazy", "-Wl,-z,norelro"],
    "partial relro": ["-Wl,-z,lazy", "-Wl,-z,relro"],
    "full relro": ["-Wl,-z,now", "-Wl,-z,relro"],
}

__all__ = ["runtime_works"]  # a fixture


def build(folder, flavour, linking):
    compiler = compiler_for(flavour)
    for name, needs in (("c10", []), ("torch_cpu", ["c10"]), ("c10_cuda", ["c10"])):
        command = [compiler_for("plain"), "-shared", "-fPIC", "-O1", *linking]
        command += [str(FAKES / f"{name}.c"), "-o", str(folder / f"lib{name}.so")]
        command += [f"-Wl,-soname,lib{name}.so", f"-L{folder}", "-Wl,-rpath,$ORIGIN"]
        checked([*command, *(f"-l{need}" for need in needs)])
    program = str(folder / "patch_program")
    command = [compiler, *FLAGS, *FLAVOURS[flavour], "-fexceptions", "-fPIC"]
    checked([*command, str(FAKES / "patch_program.c"), *map(str, SOURCES), "-o", program, "-ldl"])
    return program


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("flavour", ["plain", "address"])
def test_patching(tmp_path, flavour, binding, runtime_works):
    if flavour != "plain":
        runtime_works(compiler_for(flavour), flavour)
    program = build(tmp_path, flavour, BINDINGS[binding])
    output = checked([program, str(tmp_path)], ASAN_OPTIONS="detect_leaks=0")
    assert output.count(" ok\n") == 5
