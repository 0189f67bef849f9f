"""Checks the rules of ARCHITECTURE.md and CONTRIBUTING.md that a program can check."""

import ast
import re
import tomllib
from collections import defaultdict
from itertools import chain
from pathlib import Path

import pytest
from circles import absolute, circles, expanded, module_path, named_paths, python_imports, rust_imports

ROOT = Path(__file__).parent.parent
LINES_MAX = 600

# The crates of this workspace that each crate may use; development-only dependencies are listed apart.
CRATES = {
    "clock": set(),
    "wire": set(),
    "net": set(),
    "records": {"clock"},
    "quantity": set(),
    "configuration": {"quantity"},
    "variates": {"quantity"},
    "hit_ratio": set(),
    "key_distribution": set(),
    "convert": {"configuration", "key_distribution", "quantity"},
    "dns": {"clock"},
    "proxy": {"clock", "configuration", "wire", "net", "records", "quantity", "key_distribution"},
    "link": {"clock"},
    "keeper": {"clock"},
    "load": {"clock", "wire", "net", "records", "key_distribution", "variates"},
    "cache": {"clock", "wire", "net", "records"},
    "simulate": {"clock", "records"},
    "top": {"clock", "quantity"},
    "messages": {"clock", "configuration", "net", "quantity", "records"},
    "waystage": set(
        "clock wire net records convert dns proxy link load cache simulate quantity key_distribution variates "
        "messages keeper top hit_ratio".split()
    ),
    "testkit": {"clock", "cache", "net"},
}
DEVELOPMENT = {"testkit", "records", "wire", "cache"}

# Of the packages of others: nothing that does I/O, and nothing that knows a protocol above TLS.
WIRE_MAY_USE = {"itoa", "memchr", "thiserror"}
NET_MAY_USE = {"mio", "rustix", "rustls", "socket2", "thiserror"}

# The packages that each Python package may import, besides `errors` and `runfolder`, which have no logic of a step.
PACKAGES = {
    "runfolder": set(),
    "outputs": set(),
    "spec": set(),
    "plan": {"spec"},
    "testbed": {"outputs", "plan", "spec"},
    "run": set("testbed outputs plan spec".split()),
    "records": set(),
    "models": set(),
    "messages": set(),
    "analysis": {"records"},
    "fit": {"analysis", "records", "models"},
    "predict": {"fit", "analysis", "records", "models"},
    "report": {"predict", "fit", "analysis", "records", "models"},
    "notebook": {"report", "predict", "fit", "analysis", "records", "models"},
    "live": set(),
    "adapters": {"spec", "fit", "analysis", "records", "models"},
    "cli": set(
        "spec plan testbed run records models analysis fit predict report notebook adapters outputs live".split()
    ),
}
SHARED = {"bounded", "errors", "program", "runfolder", "version"}
# What a report must not import, because it would compute with it.
COMPUTES = {"numpy", "scipy", "statistics", "pandas", "statsmodels", "hdrh", "pydoe", "subprocess"}
MODELS_MAY_USE = {"numpy", "scipy"}
# The limits of files that are read need the standard library only.
MODELS_OF_THE_LAB = ("waylab.models", "waylab.bounded", "waylab.program")
SLOW_TO_LOAD = {"statsmodels", "pandas", "pydoe"}
STATISTICS_MAY_USE = MODELS_MAY_USE | SLOW_TO_LOAD
STANDARD_LIBRARY = {
    "collections",
    "csv",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "json",
    "math",
    "numbers",
    "pathlib",
    "string",
    "typing",
    "warnings",
    "__future__",
}
# The only model that runs a program of this project, and may import what it needs for that.
SIMULATE = Path("waylab/models/simulate.py")
SIMULATE_MAY_USE = {"subprocess", "tempfile"}

# The files of systems. What others may use, their folders hand on.
SYSTEM_FILES = {path.stem for path in (ROOT / "waylab/spec/systems").glob("[a-z]*.py")}

# In the models, from the bottom up: a file or folder may import the lines above it, and its own line.
MODEL_LAYERS = (
    {"errors", "service", "uniformisation", "phase_type", "usl"},
    {"elementary"},
    {"description"},
    {"network_checks"},
    {"network"},
    {"network_file", "traffic", "features", "result"},
    {"solvers"},
    {"bounds", "solve", "simulate"},
    {"sweep"},
    {"summary"},
)

# In `analysis/across`, from the bottom up: the files, then these folders.
ACROSS_FOLDERS = ("contrasts", "answer")
# A folder with more files than this is divided into several.
FILES_OF_ANALYSIS_MAX = 18

# In the proxy, from the bottom up: a file may import the lines above it, and its own line.
# The longest prefix of a file's name decides its layer.
PROXY_LAYERS = (
    {"config"},
    {
        "observe",
        "path/addresses",
        "path/auth",
        "path/messages",
        "path/listeners",
        "path/route",
        "path/dispatch/queue",
    },
    {"path/late", "path/key_versions"},
    {"path/job"},
    {
        "path/clients",
        "path/command_groups",
        "path/jobs",
        "path/meta",
        "path/near_cache",
        "path/leg_request",
        "path/order",
        "path/rate_limits",
        "path/rewrite",
    },
    {"path/join", "path/journal"},
    {"replication"},
    {"path/backend"},
    {"path/dispatch"},
    {"path/core"},
    {"path/session"},
    {"path/accept", "path/event_loop"},
    {"control"},
)
# Imports that are forbidden although they go down: sessions reach backends through `core`, disciplines know
# connections by number, and policies send through the function that they are given.
PROXY_NEVER = {
    "path/session": {"path/backend", "path/dispatch", "replication"},
    "path/dispatch": {"path/backend/connection"},
    "path/dispatch/queue": {"observe", "path"},
    "path/route": {"observe", "path"},
    "path/order": {"path/job", "path/jobs"},
    "path/journal": {"replication"},
    "replication": {"path/join", "path/journal"},
}


# Files that still import each other in a circle, by crate and for waylab. Nothing may be added.
IN_CIRCLES: dict[str, int] = {}


def rust_files() -> list[Path]:
    """Every Rust file of the project."""
    return sorted(
        path for path in (ROOT / "crates").rglob("*.rs") if "target" not in path.relative_to(ROOT).parts
    )


def python_files() -> list[Path]:
    """Every Python file of the project."""
    return sorted(chain((ROOT / "waylab").rglob("*.py"), (ROOT / "tests").rglob("*.py")))


def imports(path: Path) -> set[str]:
    """The full names of the modules that a Python file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the module that defines a name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def listed(heading: str) -> list[list[str]]:
    """The cells of the rows of the tables below a heading of ARCHITECTURE.md that begin with a name."""
    section = re.split(r"^## ", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.M)
    (text,) = (part for part in section if part.startswith(heading + "\n"))
    rows = [line.strip().strip("|").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in row] for row in rows]


def uses(cell: str, above: list[str], table: dict[str, set[str]]) -> set[str]:
    """The names of the last cell of a row, written out."""
    names = set(re.findall(r"`(\w+)`", cell))
    if cell.startswith("all above"):
        return set(above) - names
    return names | {name for other in names for name in table[other]} if "its imports" in cell else names


def test_the_map_shows_what_each_crate_uses_and_its_rooms():
    rows = listed("The Rust crates")
    crates = [row for row in rows if row[0].strip("`") in CRATES and "·" not in row[1]]
    names = [row[0].strip("`") for row in crates]
    assert sorted(names) == sorted(CRATES)
    for number, (name, row) in enumerate(zip(names, crates, strict=True)):
        if row[2] != "all":
            assert uses(row[2], names[:number], CRATES) == CRATES[name], name
    rooms = [row for row in rows if "·" in row[1]]
    assert len(rooms) == 4
    for crate, text in rooms:
        folders = {
            path.name for path in (ROOT / "crates" / crate.strip("`") / "src").iterdir() if path.is_dir()
        }
        assert {re.match(r"`(\w+)`", room).group(1) for room in text.split(" · ")} == folders, crate


def test_the_map_shows_what_each_package_imports():
    rows = listed("The Python packages")
    names = [row[0].strip("`") for row in rows]
    assert sorted(names) == sorted(PACKAGES)
    for number, row in enumerate(rows):
        found = uses(row[2] if len(row) > 2 else "", names[:number], PACKAGES)
        assert found - SHARED == PACKAGES[names[number]], names[number]


def test_every_crate_is_listed():
    assert {path.parent.name for path in (ROOT / "crates").glob("*/Cargo.toml")} == set(CRATES)


@pytest.mark.parametrize("crate", CRATES)
def test_crates_depend_only_downwards(crate):
    manifest = tomllib.loads((ROOT / "crates" / crate / "Cargo.toml").read_text())
    assert set(manifest) & {"build-dependencies", "target"} == set(), "would hide a dependency from this test"
    assert all(
        found == {"workspace": True} | options(found) for found in manifest.get("dependencies", {}).values()
    )
    assert set(manifest.get("dependencies", {})) & set(CRATES) <= CRATES[crate]
    assert set(manifest.get("dev-dependencies", {})) & set(CRATES) <= CRATES[crate] | DEVELOPMENT
    assert manifest["lints"] == {"workspace": True}


def options(dependency: dict[str, object]) -> dict[str, object]:
    """What a crate may say of a dependency besides that it is the workspace's: not another name or place for it."""
    return {key: value for key, value in dependency.items() if key in {"features", "optional"}}


def test_wire_does_no_io_and_net_knows_no_protocol():
    for path in (ROOT / "crates/wire/src").rglob("*.rs"):
        text = re.sub(r"//.*", "", path.read_text())
        assert not re.search(r"\bstd::(?:fs|io|net|os|process|thread)\b|\buse std::\{", text), path
    for crate, known in (("wire", WIRE_MAY_USE), ("net", NET_MAY_USE)):
        manifest = tomllib.loads((ROOT / "crates" / crate / "Cargo.toml").read_text())
        assert set(manifest["dependencies"]) <= known


def test_only_the_clock_is_exempt_from_the_ban_on_clocks():
    exempt = {
        path for path in rust_files() if re.search(r"(?:allow|expect)\([^)]*disallowed_", path.read_text())
    }
    # The timer's test sleeps on a real clock.
    assert exempt == {ROOT / "crates/clock/src/source.rs", ROOT / "crates/net/src/timer.rs"}


@pytest.mark.parametrize("crate", CRATES)
def test_there_is_no_global_state(crate):
    for path in (ROOT / "crates" / crate / "src").rglob("*.rs"):
        text = re.sub(r"//.*", "", path.read_text())
        found = re.search(r"^\s*(?:pub(?:\([^)]*\))? )?static \w.*|.*thread_local!.*", text, re.M)
        assert not found, f"{path.relative_to(ROOT)}: {found and found.group().strip()}"


def proxy_imports() -> dict[str, set[str]]:
    """For each file of the proxy, such as `path/session`, the modules that it names, also in inline tests."""
    root = ROOT / "crates/proxy/src"
    files = [path for path in root.rglob("*.rs") if "tests" not in path.with_suffix("").parts]
    imported = {}
    for file in files:
        text = re.sub(r"//.*", "", file.read_text())
        trees = ["".join(tree.split()) for tree in re.findall(r"\buse (crate::[^;]+);", text)]
        names = [name for tree in trees for name in expanded(tree)]
        names += re.findall(r"\bcrate(?:::\w+)+", re.sub(r"\buse [^;]+;", "", text))
        module = module_path(file, root)
        found = {name.removeprefix("crate::").replace("::", "/") for name in names}
        # In an inline test, `super` is the file itself: there only `crate` counts.
        found |= {"/".join(absolute(name.split("::"), module)) for name in named_paths(text)}
        imported["/".join(module) or "lib"] = found
    return imported


def is_in(module: str, place: str) -> bool:
    return module == place or module.startswith(place + "/")


def test_proxy_files_import_only_lower_layers():
    rank = {place: number for number, layer in enumerate(PROXY_LAYERS) for place in layer}

    def rank_of(module: str) -> int | None:
        fitting = [place for place in rank if is_in(module, place)]
        return rank[max(fitting, key=len)] if fitting else None

    modules = proxy_imports()
    faces = {"lib", "path"}
    assert {place for place in rank if not any(is_in(module, place) for module in modules)} == set()
    for module, names in modules.items():
        if module in faces:
            continue
        mine = rank_of(module)
        assert mine is not None, f"{module} is in no layer"
        for name in names:
            other = rank_of(name)
            assert other is not None and other <= mine, f"{module} imports {name}"


def test_two_files_of_the_path_import_the_policies():
    found = {
        module
        for module, names in proxy_imports().items()
        if is_in(module, "path") and any(is_in(name, "replication") for name in names)
    }
    # `core` reads once, at the start, whether the policies keep requests in order.
    assert found == {"path/dispatch/dispatcher", "path/core"}


@pytest.mark.parametrize("place", PROXY_NEVER)
def test_proxy_files_do_not_import_what_is_forbidden_to_them(place):
    for module, names in proxy_imports().items():
        if is_in(module, place):
            own = {name for name in names if is_in(name, module)}
            found = {name for name in names - own for other in PROXY_NEVER[place] if is_in(name, other)}
            assert not found, f"{module} imports {sorted(found)}"


@pytest.mark.parametrize("crate", CRATES)
def test_no_rust_files_import_each_other(crate):
    found = circles(rust_imports(ROOT / "crates" / crate / "src"))
    assert sum(map(len, found)) <= IN_CIRCLES.get(crate, 0), [sorted(map(str, group)) for group in found]


def test_no_python_files_import_each_other():
    found = circles(python_imports(ROOT / "waylab"))
    assert sum(map(len, found)) <= IN_CIRCLES.get("waylab", 0), [sorted(map(str, group)) for group in found]


def repeated(names: dict[str, set[Path]]) -> dict[str, list[str]]:
    """Return the names that more than one file defines, with the files."""
    return {name: sorted(map(str, files)) for name, files in names.items() if len(files) > 1}


@pytest.mark.parametrize("crate", CRATES)
def test_no_two_types_of_a_crate_have_one_name(crate):
    names = defaultdict(set)
    for path in (ROOT / "crates" / crate / "src").rglob("*.rs"):
        for name in re.findall(
            r"^pub(?:\([^)]*\))? (?:struct|enum|trait|type) (\w+)", path.read_text(), re.M
        ):
            names[name].add(path)
    assert repeated(names) == {}


def test_no_two_classes_of_the_lab_have_one_name():
    names = defaultdict(set)
    for path in (ROOT / "waylab").rglob("*.py"):
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.M):
            names[name].add(path)
    assert repeated(names) == {}


def test_every_python_package_is_listed():
    found = {path.parent.name for path in (ROOT / "waylab").glob("*/__init__.py")}
    assert found == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_python_packages_import_only_downwards(package):
    for path in (ROOT / "waylab" / package).rglob("*.py"):
        used = {name.split(".")[1] for name in imports(path) if name.startswith("waylab.")}
        allowed = PACKAGES[package] | SHARED | {package}
        assert used <= allowed, f"{path.relative_to(ROOT)} imports {sorted(used - allowed)}"


def test_models_use_numpy_and_scipy_only():
    for path in (ROOT / "waylab/models").rglob("*.py"):
        used = {name.split(".")[0] for name in imports(path) if not name.startswith(MODELS_OF_THE_LAB)}
        allowed = MODELS_MAY_USE | STANDARD_LIBRARY
        if path == ROOT / SIMULATE:
            allowed |= SIMULATE_MAY_USE
        assert used <= allowed, f"{path}: {used - allowed}"


def test_models_import_only_downwards():
    rank = {name: number for number, layer in enumerate(MODEL_LAYERS) for name in layer}
    root = ROOT / "waylab/models"
    found = {path.relative_to(root).parts[0].removesuffix(".py") for path in root.rglob("*.py")}
    assert found - {"__init__"} == set(rank)
    for path in root.rglob("*.py"):
        mine = path.relative_to(root).parts[0].removesuffix(".py")
        if mine == "__init__":
            continue
        for name in imports(path):
            if name.startswith("waylab.models."):
                assert rank[name.split(".")[2]] <= rank[mine], f"{path.relative_to(ROOT)} imports {name}"


def test_the_analysis_across_trials_imports_only_downwards():
    root = ROOT / "waylab/analysis/across"
    assert {path.name for path in root.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(
        ACROSS_FOLDERS
    )
    rank = {name: number for number, name in enumerate(("", *ACROSS_FOLDERS))}
    for path in root.rglob("*.py"):
        mine = "" if path.parent == root else path.parent.name
        for name in imports(path):
            if name.startswith("waylab.analysis.across."):
                part = name.split(".")[3]
                other = part if part in rank else ""
                assert rank[other] <= rank[mine], f"{path.relative_to(ROOT)} imports {name}"


def test_no_folder_of_the_analysis_is_too_long_to_read():
    for folder in (path.parent for path in (ROOT / "waylab/analysis").rglob("__init__.py")):
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= FILES_OF_ANALYSIS_MAX, folder


def test_only_the_systems_know_which_system_it_is():
    """No other code of the lab reads `system.kind` or imports a system; it reads the system's description."""
    homes = (ROOT / "waylab/spec/systems", ROOT / "waylab/testbed/systems")
    for path in (ROOT / "waylab").rglob("*.py"):
        if not path.is_relative_to(homes[0]) and not path.is_relative_to(homes[1]):
            asked = [text for text in map(asks_for_a_system, ast.walk(ast.parse(path.read_text()))) if text]
            parts = (name.split(".") for name in imports(path))
            asked += [
                ".".join(part) for part in parts if part[2:3] == ["systems"] and part[3] in SYSTEM_FILES
            ]
            assert not asked, f"{path.relative_to(ROOT)}: {asked}"


def is_a_system_name(node: ast.AST) -> bool:
    return bool(re.search(r"descri\w+\W*\bname\W*$", ast.unparse(node)))


def asks_for_a_system(node: ast.AST) -> str | None:
    """Return the source of an expression that reads a system's name; None for any other."""
    match node:
        case ast.Attribute(attr="kind", value=owner):
            pass
        case ast.Subscript(slice=ast.Constant(value="kind"), value=owner):
            pass
        case ast.Call(func=ast.Attribute(attr="get", value=owner), args=[ast.Constant(value="kind"), *_]):
            pass
        case ast.Compare(left=left, comparators=[*right]) if any(map(is_a_system_name, (left, *right))):
            return ast.unparse(node)
        case (
            ast.Match(subject=side) | ast.Call(func=ast.Attribute(attr="startswith" | "endswith", value=side))
        ) if is_a_system_name(side):
            return ast.unparse(side)
        case _:
            return None
    return ast.unparse(node) if re.search(r"system(s\[.*)?['\"]?\]?$", ast.unparse(owner)) else None


@pytest.mark.parametrize(
    "text",
    [
        'trial.system.kind == "direct"',
        'plan["system"]["kind"] in ("messages", "database")',
        'match_on(system.get("kind"))',
        'content.spec["system"]["description"]["name"] == "proxy"',
        'trial.description.name.startswith("prox")',
        'match trial.description.name:\n    case "proxy":\n        pass',
    ],
)
def test_the_check_finds_code_that_reads_the_systems_name(text):
    assert any(map(asks_for_a_system, ast.walk(ast.parse(text))))
    assert not any(map(asks_for_a_system, ast.walk(ast.parse('testbed.kind == "local" and design["kind"]'))))


@pytest.mark.parametrize("package", ["analysis", "records", "models", "fit", "predict"])
def test_the_analysis_neither_draws_nor_starts_processes(package):
    for path in (ROOT / "waylab" / package).rglob("*.py"):
        used = {name.split(".")[0] for name in imports(path)}
        if path == ROOT / SIMULATE:
            used -= SIMULATE_MAY_USE
        assert not used & {"altair", "vl_convert", "subprocess", "psutil", "rich"}, path


def test_the_statistics_import_nothing_of_the_lab():
    for path in (ROOT / "waylab/analysis/statistics").rglob("*.py"):
        names = imports(path)
        lab = {name for name in names if name.startswith("waylab.")}
        assert all(name.startswith(("waylab.errors.", "waylab.analysis.statistics.")) for name in lab), path
        used = {name.split(".")[0] for name in names - lab}
        assert used <= STATISTICS_MAY_USE | STANDARD_LIBRARY, f"{path}: {used - STATISTICS_MAY_USE}"
        # These modules take a second to load: only the functions that need them import them.
        top = {
            name.split(".")[0]
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
        }
        assert not top & SLOW_TO_LOAD, path


def test_the_report_computes_nothing():
    for path in (ROOT / "waylab/report").rglob("*.py"):
        used = {name.split(".")[0] for name in imports(path)}
        assert not used & COMPUTES, path


def test_only_the_emulated_testbed_makes_network_namespaces():
    home = ROOT / "waylab/testbed/netns"
    found = {
        path
        for path in (ROOT / "waylab").rglob("*.py")
        if {n.split(".")[0] for n in imports(path)} & {"pyroute2"}
    }
    assert all(path.is_relative_to(home) for path in found) and found


def test_files_are_short():
    long = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in rust_files() + python_files()
    }
    assert {name: lines for name, lines in long.items() if lines > LINES_MAX} == {}


def test_every_file_has_a_header():
    for path in rust_files():
        first = path.read_text().lstrip().splitlines()[0]
        if "fuzz_targets" in path.parts and first.startswith("#!"):
            first = path.read_text().lstrip().splitlines()[1]
        assert first.startswith("//! "), path
    for path in python_files():
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_links_of_the_docs_resolve():
    for page in chain(ROOT.glob("*.md"), (ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert "://" in target or (page.parent / target).exists(), f"{page}: {target}"


def test_docs_link_only_to_headings_that_are_there():
    for page in chain(ROOT.glob("*.md"), (ROOT / "docs").rglob("*.md")):
        for target, heading in re.findall(r"\]\(([^):#]*\.md|)#([^)]+)\)", page.read_text()):
            titles = re.findall(r"^#+ (.+)$", (page.parent / target if target else page).read_text(), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in anchors, f"{page}: {target}#{heading}"


def test_every_decision_is_in_the_index():
    index = (ROOT / "docs/decisions/README.md").read_text()
    for page in (ROOT / "docs/decisions").glob("0*.md"):
        assert f"({page.name})" in index, page.name


def test_every_dependency_has_its_reason():
    reasons = (ROOT / "docs/decisions/0002-dependencies.md").read_text()
    named = set(re.findall(r"[\w-]+", reasons))
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["dependencies"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = {
        re.match(r"[\w-]+", line).group()
        for line in project["dependencies"] + project["optional-dependencies"]["dev"]
    }
    assert (set(workspace) - set(CRATES)) | python <= named


def test_no_program_panics_if_nobody_reads_its_standard_error():
    # `eprint!` and `eprintln!` do; `testkit` is for tests.
    prints = re.compile(r"\beprint(?:ln)?!\(")
    sources = list((ROOT / "crates").glob("*/src/**/*.rs"))
    assert len(sources) > 100
    found = [str(path.relative_to(ROOT)) for path in sources if prints.search(path.read_text())]
    assert [path for path in found if not path.startswith("crates/testkit/")] == []


def test_no_two_sources_have_the_same_code():
    seen = {}
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        code = re.sub(r"^\s*//.*\n?", "", path.read_text(), flags=re.M).replace("pub(crate) ", "pub ").strip()
        assert code not in seen or not code, f"{path} and {seen[code]}"
        seen[code] = path
