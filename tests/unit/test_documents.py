"""What the documents name exists: files, anchors, functions, settings, commands, options, presets."""

import ast
import functools
import re
from pathlib import Path

import pytest
from gymnasium.envs.registration import registry

from actsafe.cli.main import COMMANDS
from actsafe.envs.registration import register
from actsafe.training.presets import PRESETS

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "benchmarks/README.md", *(ROOT / "docs").glob("*.md")])
PLACES = (ROOT, ROOT / "src/actsafe", ROOT / "docs", ROOT / "tests", ROOT / "benchmarks", ROOT / "examples")
OF_OTHERS = frozenset(
    [
        "AsyncVectorEnv",
        "Box",
        "DreamerV3",
        "Equinox",
        "Gymnasium",
        "JAX",
        "KeyboardInterrupt",
        "MUJOCO_LOG.TXT",
        "MuJoCo",
        "NEXT_STEP",
        "Optax",
        "Orbax",
        "PYTHONPATH",
        "RAM",
        "RecordVideo",
        "RenderCollection",
        "SAME_STEP",
        "SameStep",
        "SubprocVecEnv",
        "SyncVectorEnv",
        "TimeAwareObservation",
        "WANDB_MODE",
        "XLA_CLIENT_MEM_FRACTION",
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "apply",
        "arm",
        "chromium",
        "demo",
        "imageio",
        "info",
        "json_normalize",
        "kill",
        "make",
        "max_episode_steps",
        "moviepy",
        "observation",
        "pandas",
        "pip",
        "reset",
        "step",
        "wandb",
    ]
)
"""Words of other projects, and of the shell."""

document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@functools.cache
def names() -> frozenset[str]:
    """Every identifier and word of a string in the sources."""
    found: set[str] = set()
    for folder in ("src", "tests", "benchmarks", "examples"):
        for file in (ROOT / folder).rglob("*.py"):
            if file == Path(__file__):
                continue
            found.update(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", file.read_text(encoding="utf-8")))
    return frozenset(found)


@functools.cache
def ids() -> frozenset[str]:
    """Names of our environments, without namespace and version."""
    register()
    ours = (name.partition("/")[2] for name in registry if name.startswith("actsafe/"))
    return frozenset(name.rpartition("-v")[0] for name in ours)


def prose(path: Path) -> str:
    """The text without its blocks of code."""
    return re.sub(r"(?ms)^```.*?^```$", "", path.read_text(encoding="utf-8"))


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^```.*?^```$", "", path.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@document
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(path))
    for target in targets:
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{path.name} links {target}"
        if anchor:
            assert anchor in anchors(file), f"{path.name} links {target}; there are {sorted(anchors(file))}"


@document
def test_paths_in_code_exist(path: Path) -> None:
    for quoted in re.findall(r"`([^`\n]+)`", prose(path)):
        name = quoted.split("::")[0].split(":")[0]
        if re.fullmatch(r"[\w./-]+/[\w./-]*\.(py|md|json|sh|html|png|toml)|[\w-]+\.(py|md|sh)", name):
            nested = name.count("/") == 0 and (name == "arm.py" or any(ROOT.glob(f"*/**/{name}")))
            assert nested or any((place / name).exists() for place in PLACES), f"{path.name} names {quoted}"


@document
def test_names_in_code_exist(path: Path) -> None:
    """`Class.method`, `function`, `agent.group.setting`: each part is an identifier of the sources."""
    known = names()
    for quoted in re.findall(r"`([^`\n]+)`", prose(path)):
        bare = re.sub(r"\(.*\)$|=.*$", "", quoted)
        if not re.fullmatch(r"[A-Za-z_][\w]*(\.[A-Za-z_]\w*)*", bare) or bare in OF_OTHERS:
            continue
        if bare.endswith((".py", ".json", "_")) or bare.startswith("_") or bare in PRESETS or bare in ids():
            continue
        missing = [part for part in bare.split(".") if part not in known and part not in OF_OTHERS]
        assert not missing, f"{path.name} names {quoted}; nothing is called {missing}"


@document
def test_commands_exist(path: Path) -> None:
    """Every command, option and preset of `actsafe` lines, in blocks and in the text."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"(?m)^(?:PYTHONPATH=\S+ )?actsafe ([a-z]+[^`\n]*)", "\n".join(code(text))):
        words = line.split()
        assert words[0] in COMMANDS, f"{path.name}: actsafe {line}"
        source = (ROOT / f"src/actsafe/cli/{words[0]}.py").read_text(encoding="utf-8")
        options = option_names(source) | option_names((ROOT / "src/actsafe/cli/options.py").read_text(encoding="utf-8"))
        for word in words[1:]:
            if word.startswith("--") and len(word) > 2:
                option = word[2:].split("=")[0]
                assert option in options, f"{path.name}: actsafe {line}; --{option} is not among {sorted(options)}"
        for preset in re.findall(r"--preset ([\w-]+)", line):
            assert preset in PRESETS, f"{path.name}: actsafe {line}"


def code(text: str) -> list[str]:
    """What is set as code."""
    fenced = re.findall(r"(?ms)^```\w*\n(.*?)^```$", text)
    return fenced + re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```$", "", text))


def option_names(source: str) -> set[str]:
    """Fields of the command's class as options, and names and aliases that annotations give."""
    found = {"help"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id.replace("_", "-"))
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"-{0,2}[a-z-]+", node.value)
        ):
            found.add(node.value.lstrip("-"))
    return found


@document
def test_python_in_documents_compiles_and_names_what_exists(path: Path) -> None:
    known = names()
    for block in blocks(path, "python"):
        tree = ast.parse(block)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("actsafe"):
                missing = [alias.name for alias in node.names if alias.name not in known]
                assert not missing, f"{path.name}: {ast.unparse(node)}"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "actsafe":
                assert node.attr in known, f"{path.name}: actsafe.{node.attr}"


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_results_file_is_named_by_a_document() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    unnamed = [file.name for file in (ROOT / "results").glob("*.json") if file.name not in text]
    assert not unnamed
