import subprocess
import sys

import ddtree


def test_import_needs_neither_triton_nor_a_gpu():
    code = "import sys, ddtree; assert 'triton' not in sys.modules; assert 'ddtree.reference.tree' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"CUDA_VISIBLE_DEVICES": "", "PATH": ""})


def test_everything_public_exists_and_is_sorted():
    assert sorted(ddtree.__all__) == ddtree.__all__
    assert all(hasattr(ddtree, name) for name in ddtree.__all__)
