"""Each field that client-go reads of a kubeconfig: used, refused or ignored, as the table of docs/settings.md says."""

import asyncio
import base64
import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pathways_jupyter.base.errors import PathwaysError
from pathways_jupyter.kube import auth

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"
FIELDS = {
    "the file": {
        *("apiVersion", "kind", "preferences", "clusters", "users", "contexts", "current-context", "extensions"),
    },
    "a context": {"cluster", "user", "namespace", "extensions"},
    "a cluster": {
        *("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority"),
        *("certificate-authority-data", "proxy-url", "disable-compression", "extensions"),
    },
    "a user": {
        *("client-certificate", "client-certificate-data", "client-key", "client-key-data", "token", "tokenFile"),
        *("as", "as-uid", "as-groups", "as-user-extra", "username", "password", "auth-provider", "exec", "extensions"),
    },
    "exec": {"command", "args", "env", "apiVersion", "installHint", "provideClusterInfo", "interactiveMode"},
}
"""Those of client-go's tools/clientcmd/api/v1/types.go."""
V1 = "client.authentication.k8s.io/v1"
TOKEN, PAIR, CERTIFICATE = (
    {"token": "t"},
    {"username": "u", "password": "p"},
    {"client-key": "key", "client-certificate": "c"},
)
EXEC = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never", "provideClusterInfo": True}
NOTE = [{"name": "note", "extension": {"a": 1}}]
FOR_PLUGIN = [
    *NOTE,
    {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x", "nested": [{"b": 2}]}},
]


def table() -> dict[str, dict[str, str]]:
    """Return the table's last column by owner and field."""
    section = DOCS.read_text(encoding="utf-8").partition("## Fields of a kubeconfig")[2].partition("\n## ")[0]
    found: dict[str, dict[str, str]] = {}
    for line in section.splitlines():
        if line.startswith("|") and "`" in line:
            owner, fields, said = (each.strip() for each in line.strip("| ").split(" | "))
            for field in re.findall(r"`([\w-]+)`", fields):
                assert field not in found.setdefault(owner, {})
                found[owner][field] = said
    return found


@pytest.fixture
def directory(tmp_path) -> Path:
    """A directory with a plugin, a token, two certificates and their keys."""
    plugin = tmp_path / "plugin"
    answer = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "of-the-plugin"}}
    plugin.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"asked = [sys.argv[1:], os.environ.get('EXTRA'), json.loads(os.environ['KUBERNETES_EXEC_INFO'])]\n"
        f"json.dump(asked, open({str(tmp_path / 'asked')!r}, 'w'))\nprint(json.dumps({answer!r}))\n"
    )
    plugin.chmod(0o700)
    (tmp_path / "token").write_text("of-the-file")
    for name in ("c", "other"):
        names = ("-subj", f"/CN={name}", "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / name)
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
        subprocess.run(make, check=True, capture_output=True)
    (tmp_path / "key").write_bytes((tmp_path / "c.key").read_bytes())
    return tmp_path


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def config(user: dict, cluster: dict | None = None, context: dict | None = None, **top: object) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [
            {"name": "x", "context": {"cluster": "c", "user": "u", **(context or {})}},
            {"name": "y", "context": {"cluster": "d", "user": "v"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://127.0.0.1:1", **(cluster or {})}},
            {"name": "d", "cluster": {"server": "https://127.0.0.1:2"}},
        ],
        "users": [{"name": "u", "user": user}, {"name": "v", "user": {"token": "other"}}],
        **top,
    }


async def effect(directory: Path, content: dict) -> list:
    """Return all that a kubeconfig decides: the server, TLS, the credentials, what a plugin is asked."""
    path = directory / "config"
    path.write_text(json.dumps(content))
    (directory / "asked").unlink(missing_ok=True)
    found = auth.load(str(path), environ={})
    secure = found.ssl
    assert secure is not None
    failed, header = "", ""
    try:
        header = await found.credentials.authorization()
    except PathwaysError as error:
        failed = f"{error} {error.hint}"
    asked = (directory / "asked").read_text() if (directory / "asked").exists() else ""
    trusted = [each["serialNumber"] for each in secure.get_ca_certs() if each["subject"][0][0][1] in {"c", "other"}]
    return [
        *(found.name, found.server, found.server_name, found.namespace, found.proxy, list(found.headers)),
        *(secure.verify_mode, trusted, header, failed, asked),
    ]


def test_the_table_has_every_field_of_client_go():
    assert {owner: set(fields) for owner, fields in table().items()} == FIELDS


def changes(directory: Path) -> dict[tuple[str, str], tuple[dict, dict]]:
    """Return two kubeconfigs for each field, which differ in it only."""
    ca, both = {"certificate-authority": "c"}, {**TOKEN, "as": "a"}
    found = {
        ("the file", "current-context"): (config(TOKEN), config(TOKEN, **{"current-context": "y"})),
        ("the file", "contexts"): (config(TOKEN), config(TOKEN, {}, {"user": "v"})),
        ("the file", "clusters"): (config(TOKEN), config(TOKEN, {"server": "https://127.0.0.1:3"})),
        ("the file", "users"): (config(TOKEN), config(PAIR)),
        ("the file", "apiVersion"): (config(TOKEN), config(TOKEN, apiVersion="v0")),
        ("the file", "kind"): (config(TOKEN), config(TOKEN, kind="")),
        ("the file", "preferences"): (config(TOKEN), config(TOKEN, preferences={"colors": True})),
        ("the file", "extensions"): (config(TOKEN), config(TOKEN, extensions=NOTE)),
        ("a context", "cluster"): (config(TOKEN), config(TOKEN, {}, {"cluster": "d"})),
        ("a context", "user"): (config(TOKEN), config(TOKEN, {}, {"user": "v"})),
        ("a context", "namespace"): (config(TOKEN), config(TOKEN, {}, {"namespace": "n"})),
        ("a context", "extensions"): (config(TOKEN), config(TOKEN, {}, {"extensions": NOTE})),
        ("a cluster", "certificate-authority"): (config(TOKEN), config(TOKEN, ca)),
        ("a cluster", "certificate-authority-data"): (
            config(TOKEN, ca),
            config(TOKEN, {**ca, "certificate-authority-data": encoded(directory / "other")}),
        ),
        ("a cluster", "extensions"): (config({"exec": EXEC}), config({"exec": EXEC}, {"extensions": FOR_PLUGIN})),
        ("a user", "client-key"): (config(CERTIFICATE), config({**CERTIFICATE, "client-key": "other.key"})),
        ("a user", "client-certificate"): (config(CERTIFICATE), config({**CERTIFICATE, "client-certificate": "other"})),
        ("a user", "client-key-data"): (
            config(CERTIFICATE),
            config({**CERTIFICATE, "client-key-data": encoded(directory / "other.key")}),
        ),
        ("a user", "client-certificate-data"): (
            config(CERTIFICATE),
            config({**CERTIFICATE, "client-certificate-data": encoded(directory / "other")}),
        ),
        ("a user", "token"): (config(PAIR), config({**PAIR, **TOKEN})),
        ("a user", "tokenFile"): (config(TOKEN), config({**TOKEN, "tokenFile": "token"})),
        ("a user", "username"): (config(PAIR), config({**PAIR, "username": "v"})),
        ("a user", "password"): (config(PAIR), config({**PAIR, "password": "q"})),
        ("a user", "as"): (config(TOKEN), config(both)),
        ("a user", "as-uid"): (config(both), config({**both, "as-uid": "7"})),
        ("a user", "as-groups"): (config(both), config({**both, "as-groups": ["g"]})),
        ("a user", "as-user-extra"): (config(both), config({**both, "as-user-extra": {"d": ["e"]}})),
        ("a user", "exec"): (config({}), config({"exec": EXEC})),
        ("a user", "auth-provider"): (config({}), config({"auth-provider": {"name": "gcp", "config": {}}})),
        ("a user", "extensions"): (config(TOKEN), config({**TOKEN, "extensions": NOTE})),
    }
    for field, value in {
        "server": "https://127.0.0.1:3",
        "tls-server-name": "s",
        "insecure-skip-tls-verify": True,
        "proxy-url": "http://127.0.0.1:4",
        "disable-compression": True,
    }.items():
        found["a cluster", field] = config(TOKEN), config(TOKEN, {field: value})
    for field, value in {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "args": ["a"],
        "env": [{"name": "EXTRA", "value": "b"}],
        "provideClusterInfo": False,
        "interactiveMode": "Always",
    }.items():
        found["exec", field] = config({"exec": EXEC}), config({"exec": {**EXEC, field: value}})
    missing = {**EXEC, "command": "./none"}
    found["exec", "command"] = config({"exec": EXEC}), config({"exec": missing})
    found["exec", "installHint"] = config({"exec": missing}), config({"exec": {**missing, "installHint": "Get it."}})
    return found


async def test_each_field_has_the_effect_that_the_table_says(directory):
    pairs = changes(directory)
    assert {(owner, field) for owner, fields in FIELDS.items() for field in fields} == pairs.keys()
    for (owner, field), (without, changed) in pairs.items():
        said = table()[owner][field].partition(":")[0].partition(";")[0].partition(" ")[0]
        before = await effect(directory, without)
        try:
            after = await effect(directory, changed)
            found = "used" if before != after else "ignored"
        except PathwaysError:
            # Of a certificate and another's key it says that they do not fit, so both were read.
            found = "used" if field.startswith("client-") else "refused"
        assert found == said, (owner, field)


KUBECTL = pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl")


@KUBECTL
def test_kubectl_knows_each_field_of_the_table(directory):
    """It drops what client-go's types do not have."""
    for (owner, field), pair in changes(directory).items():
        content = copy.deepcopy(pair[1])
        if field == "provideClusterInfo":
            content["users"][0]["user"]["exec"][field] = True
        content["clusters"][0]["cluster"]["no-such-field"] = "x"
        (directory / "config").write_text(json.dumps(content))
        line = ["kubectl", "--kubeconfig", str(directory / "config"), "config", "view", "--raw", "-o", "json"]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if field in {"apiVersion", "kind"} and owner == "the file":
            continue
        shown = json.loads(done.stdout)
        assert "no-such-field" not in done.stdout
        places = {
            "the file": shown,
            "a context": shown["contexts"][0]["context"],
            "a cluster": shown["clusters"][0]["cluster"],
            "a user": shown["users"][0]["user"],
            "exec": shown["users"][0]["user"].get("exec", {}),
        }
        assert field in places[owner], (owner, field, done.stdout)


@KUBECTL
@pytest.mark.parametrize(
    "cluster",
    [
        {},
        {"certificate-authority": "c", "tls-server-name": "s", "disable-compression": True, "extensions": FOR_PLUGIN},
        {"insecure-skip-tls-verify": True, "proxy-url": "http://127.0.0.1:4", "extensions": NOTE},
    ],
)
async def test_a_plugin_gets_what_kubectl_gives_it(directory, cluster):
    content = config({"exec": {**EXEC, "args": ["a"], "env": [{"name": "EXTRA", "value": "b"}]}}, cluster)
    ours = json.loads((await effect(directory, content))[-1])
    (directory / "asked").unlink()
    line = ["kubectl", "--kubeconfig", str(directory / "config"), "get", "--raw", "/version"]
    await asyncio.to_thread(subprocess.run, line, capture_output=True, timeout=60, check=False)
    theirs = json.loads((directory / "asked").read_text())
    if theirs[2]["spec"]["cluster"].get("config", "") is None:
        del theirs[2]["spec"]["cluster"]["config"]
    assert ours == theirs
