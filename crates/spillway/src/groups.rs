//! Commands in groups, by what an operator is about to do.

/// Groups of commands in the order of the help. A test finds commands without a group.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    ("Run", &["run", "demo", "emulate"]),
    (
        "Look",
        &[
            "status", "health", "replicas", "regions", "explain", "tail", "top", "usage", "trie",
            "geo",
        ],
    ),
    (
        "Operate",
        &[
            "drain", "undrain", "weight", "limits", "tenants", "models", "routes", "splits",
            "settings", "edit", "apply", "import",
        ],
    ),
    ("Keys", &["keys", "certs", "join-token"]),
    (
        "Cluster",
        &[
            "nodes",
            "leader",
            "audit",
            "watch",
            "backup",
            "backup-key",
            "restore",
            "force-new-cluster",
        ],
    ),
    ("Tools", &["config", "debug", "anycast", "completions", "man", "reference", "help"]),
];
