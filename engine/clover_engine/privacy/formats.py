r"""Tokens that can be told by their shape: one row for each issuer.

The shapes are those of gitleaks' rule set (github.com/gitleaks/gitleaks, `config/gitleaks.toml`,
MIT) and of detect-secrets' plugins (PyPI, Apache-2.0), written anew: lengths are lower bounds, so
that a token that is cut off or still being typed counts too. What those tools find by the name of
a service beside a plain hexadecimal string is left to the assigned values (`secrets.py`).
"""

from __future__ import annotations

import re
from typing import Final

_Rows = tuple[tuple[str, str], ...]

_AT_WORD: Final[_Rows] = (
    # cloud providers
    ("AKIA ASIA ABIA ACCA A3T", r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"),
    ("AIza", r"AIza[\w-]{30,}"),
    ("GOCSPX-", r"GOCSPX-[\w-]{20,}"),
    ("ya29.", r"ya29\.[\w-]{20,}"),
    ("LTAI", r"LTAI[A-Za-z0-9]{12,}"),
    ("AccountKey= SharedAccessKey=", r"(?:Account|SharedAccess)Key=[A-Za-z0-9+/]{40,}={0,2}"),
    ("sig=", r"sig=(?=[A-Za-z+/%]*\d)[A-Za-z0-9%+/]{40,}"),
    ("dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[a-f0-9]{32,}"),
    ("dapi", r"dapi(?=[a-f]*\d)[a-f0-9]{32}(?:-\d)?"),
    ("v1.0-", r"v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}"),
    ("fo1_ fm1 fm2_", r"(?:fo1_[\w-]{40,}|fm(?:1[ar]|2)_[A-Za-z0-9+/]{60,}={0,3})"),
    ("HRKU-", r"HRKU-[\w-]{36,}"),
    ("t1. AQVN", r"(?:t1\.[\w-]{20,}={0,2}\.[\w-]{80,}|AQVN[\w-]{34,})"),
    ("tk-us-", r"tk-us-[\w-]{40,}"),
    # source hosts, packages and their tools
    ("ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{30,}"),
    ("github_pat_", r"github_pat_\w{36,}"),
    (
        "glpat- gldt- glft- glsoat- glrt- glrtr- glcbt- glimt- glptt- glagent- glffct- gloas-",
        r"gl(?:pat|dt|ft|soat|rt|rtr|cbt|imt|ptt|agent|ffct|oas)-[\w.-]{20,}",
    ),
    ("GR1348941", r"GR1348941[\w-]{20,}"),
    ("ATATT3 ATCTT3 ATBB", r"AT(?:[AC]TT3[\w=-]{60,}|BB[A-Za-z0-9]{28,})"),
    ("npm_", r"npm_[A-Za-z0-9]{30,}"),
    ("pypi-", r"pypi-[\w-]{50,}"),
    ("rubygems_", r"rubygems_[a-f0-9]{40,}"),
    ("CLOJARS_", r"CLOJARS_[A-Za-z0-9]{50,}"),
    ("oy2", r"oy2[a-z0-9]{43}"),
    ("dckr_pat_ dckr_oat_", r"dckr_[po]at_[\w-]{20,}"),
    ("AKC", r"AKC[A-Za-z0-9]{40,}"),
    ("bkua_ CCIPAT_", r"(?:bkua_[a-f0-9]{30,}|CCIPAT_\w{20,})"),
    ("sntrys_ sntryu_", r"sntry[su]_[A-Za-z0-9+/=_]{40,}"),
    ("squ_ sqp_ sqa_", r"sq[upa]_[a-f0-9]{40}"),
    ("sgp_", r"sgp_(?:[a-fA-F0-9]{16}_|local_)?[a-fA-F0-9]{40}"),
    ("hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{24,}"),
    ("dp.pt. dp.st. dp.ct. dp.sa.", r"dp\.(?:pt|st|ct|sa)\.(?:[\w-]{2,35}\.)?[A-Za-z0-9]{40,}"),
    ("pul- pnu_", r"(?:pul-[a-f0-9]{40}|pnu_[A-Za-z0-9]{36})"),
    ("PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{30,}"),
    ("pscale_", r"pscale_(?:tkn|oauth|pw)_[\w=.-]{30,}"),
    ("ops_eyJ", r"ops_eyJ[A-Za-z0-9+/]{100,}={0,3}"),
    ("AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    ("sha256~", r"sha256~[\w-]{43}"),
    ("tskey-", r"tskey-[a-z]+-[\w-]{16,}"),
    ("glsa_ glc_", r"(?:glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}|glc_[A-Za-z0-9+/]{32,}={0,3})"),
    ("dt0c01. dt0s", r"dt0[cs]\d\d\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{50,}"),
    ("NRAK- NRJS- NRII- NRAL", r"NR(?:AK|JS|II|AL)-?(?=[A-Za-z-]*\d)[A-Za-z0-9-]{19,}"),
    ("nfp_ sbp_ sb_secret_ pcsk_", r"(?:nfp_|sbp_|sb_secret_|pcsk_)(?=[A-Za-z_]*\d)\w{20,}"),
    # models
    ("sk-", r"sk-(?=[A-Za-z_-]*\d)[\w-]{20,}"),
    ("hf_ api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    ("gsk_ xai- pplx-", r"(?:gsk_|xai-|pplx-)[A-Za-z0-9]{40,}"),
    ("r8_ lsv2_", r"(?:r8_[A-Za-z0-9]{30,}|lsv2_[a-z]{2}_[a-f0-9]{30,}\w*)"),
    # messages and mail
    ("xox xapp-", r"(?:xox[abceoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{20,})"),
    ("hooks.slack", r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/[\w/+]{20,}"),
    ("api/webhooks/", r"api/webhooks/\d{15,}/[\w-]{40,}"),
    ("office.com/webhookb2/", r"office\.com/webhookb2/[\w@/-]{40,}"),
    ("SG.", r"SG\.[\w-]{16,}\.[\w-]{16,}"),
    # payment, shops, offices
    ("whsec_", r"whsec_[A-Za-z0-9+/]{20,}={0,2}"),
    ("sq0atp- sq0csp- EAAA", r"(?:sq0(?:atp|csp)-[\w-]{22,}|EAAA[\w-]{40,})"),
    ("shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    ("FLWSECK", r"FLWSECK(?:_TEST)?-[a-hA-H0-9]{12,}(?:-X)?"),
    ("EZAK EZTK", r"EZ[AT]K[A-Za-z0-9]{54}"),
    ("duffel_ shippo_", r"(?:duffel|shippo)_(?:test|live)_[\w=-]{40,}"),
    ("lin_api_ lin_oauth_", r"lin_(?:api|oauth)_[A-Za-z0-9]{36,}"),
    ("ntn_ secret_", r"(?:ntn_|secret_)(?=[A-Za-z]*\d)[A-Za-z0-9]{40,}"),
    ("figd_ fio-u- tfp_ rdme_ p8e-", r"(?:figd_|fio-u-|tfp_|rdme_|p8e-)[\w=.-]{32,}"),
    ("EAA", r"EAA[A-Z][A-Za-z0-9]{80,}"),
    ("pat-na pat-eu", r"pat-(?:na|eu)\d-[a-f0-9-]{36}"),
    ("CFPAT- sl.", r"(?:CFPAT-[\w-]{43}|sl\.[\w=-]{100,})"),
    # JSON web tokens, also cut off after their second part has begun
    ("eyJ", r"eyJ[\w-]{10,}={0,2}\.[\w-]{10,}={0,2}(?:\.[\w-]*={0,2})*"),
)

_AROUND_WORD: Final[_Rows] = (
    ("Q~", r"[\w.~]{3}\dQ~[\w.~-]{31,}"),
    (".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,}"),
    ("sib-", r"x(?:key|smtp)sib-[a-f0-9]{60,}-[A-Za-z0-9]{10,}"),
    ("-us", r"[a-f0-9]{32}-us\d{1,2}"),
    (":AA", r"\d{8,10}:AA[\w-]{33}"),
    ("k_live_ k_test_ k_prod_", r"[srp]k_(?:live|test|prod)_[A-Za-z0-9]{10,}"),
    ("_mmk", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    ("k.eyJ", r"[ps]k\.eyJ[\w-]{40,}\.[\w-]{20,}"),
    ("key-", r"(?:pub)?key-(?=[a-f]*\d)[a-f0-9]{32}"),
)

_BOUNDARY = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf0])|(?<=%[0-9A-Fa-f]{2}))"
"""A token begins no earlier than at the end of a word, of an escape or of a percent-encoding."""


def _table(rows: _Rows) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(
        (word, re.compile(f"{_BOUNDARY}(?:{shape})"))
        for words, shape in rows
        for word in words.split()
    )


AT_WORD: Final = _table(_AT_WORD)
"""(a word to search for, the pattern that matches where it stands)."""
AROUND_WORD: Final = _table(_AROUND_WORD)
"""(a word to search for, the pattern that matches around it)."""
BEFORE_WORD: Final = 80
"""At most so many characters of such a token stand before its word."""

WORDLESS: Final[re.Pattern[str]] = re.compile(
    r"[MNOAS](?<![A-Za-z0-9].)(?:"
    r"(?<=[MNO])[A-Za-z\d_-]{22,27}\.[\w-]{6}\.[\w-]{27,}"  # Discord
    r"|(?:(?<=A)C|(?<=S)K)(?=[a-f]*\d)[a-f0-9]{32}(?![A-Za-z0-9]))"  # Twilio
)
"""Shapes without a word to search for."""
