"""Files whose name says that nobody should read them: secrets, and what no hand has written."""

from __future__ import annotations

import fnmatch
import os
import re
from functools import cache

_SECRET_GLOBS_TEXT = """
.env .env.* *.env .envrc .netrc _netrc .npmrc .pypirc .pgpass .my.cnf .htpasswd .dockercfg
.git-credentials .vault-token .boto .s3cfg kubeconfig *.kubeconfig *.pem *.key *.p12 *.pfx *.jks
*.keystore *.kdbx *.ppk *.asc *.gpg *.age id_rsa* id_dsa* id_ecdsa* id_ed25519* credentials
credentials.json credentials.y*ml credentials.ini credentials.xml secrets.y*ml secrets.json
secrets.toml secrets.env *.secret *.secrets service-account*.json *serviceaccount*.json
client_secret*.json *.tfvars *.tfstate *.tfstate.* terraform.rc .terraformrc auth.json
master.key *.ovpn
"""
SECRET_GLOBS = tuple(_SECRET_GLOBS_TEXT.split())
SECRET_FOLDERS = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".gcloud"})
_UNFIT_GLOBS_TEXT = """
*.lock *-lock.json *-lock.yaml go.sum npm-shrinkwrap.json *.min.js *.min.css *.min.mjs *.map
*.bundle.js *.pb.go *_pb2.py *_pb2_grpc.py
"""
UNFIT_GLOBS = tuple(_UNFIT_GLOBS_TEXT.split())
EXAMPLES = frozenset({".env.example", ".env.sample", ".env.template", ".env.dist"})
"""Made to be read."""
_COPIES = re.compile(r"(?:~|\.(?:bak|orig|old|save|swp|swo|tmp|copy|git|\d))+\Z", re.IGNORECASE)
"""What editors and people add to the name of a copy, and git to the name of a version."""


@cache
def _globs(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(name) for name in names), re.IGNORECASE)


def secret_file(path: str) -> bool:
    """Whether a path names a file that holds secrets by convention."""
    *folders, name = path.replace(os.sep, "/").split("/")
    if name.lower() in EXAMPLES or name.endswith(".pub"):
        return False
    if any(folder.lower() in SECRET_FOLDERS for folder in folders):
        return True
    return any(_globs(SECRET_GLOBS).match(each) for each in (name, _COPIES.sub("", name)))


def unfit_file(path: str) -> bool:
    """Whether a path names a generated file that is not written by hand."""
    name = path.replace(os.sep, "/").rpartition("/")[2]
    return _globs(UNFIT_GLOBS).match(name) is not None
