//! Commands in groups, by what an operator is about to do.

use spillway_docs::Page;

/// Groups of commands in the order of the help, each command with its page of the docs. A test finds
/// commands without a group.
pub(crate) const GROUPS: &[(&str, &[(&str, Page)])] = &[
    ("Run", &[("run", Page::CONFIGURATION), ("demo", Page::INDEX), ("emulate", Page::EMULATOR)]),
    (
        "Look",
        &[
            ("status", Page::INCIDENTS),
            ("health", Page::TROUBLESHOOTING),
            ("replicas", Page::REPLICAS_TABLE),
            ("explain", Page::REQUESTS),
            ("tail", Page::REQUESTS),
            ("top", Page::INCIDENTS),
            ("usage", Page::USAGE),
            ("trie", Page::PREFIX_INDEX),
            ("geo", Page::LOCATIONS),
        ],
    ),
    (
        "Operate",
        &[
            ("drain", Page::CONTROL_PLANE),
            ("undrain", Page::CONTROL_PLANE),
            ("weight", Page::CONTROL_PLANE),
            ("limits", Page::LIMITS),
            ("splits", Page::SPLITS),
        ],
    ),
    (
        "Records",
        &[
            ("get", Page::ADMIN_API),
            ("apply", Page::ADMIN_API),
            ("edit", Page::ADMIN_API),
            ("remove", Page::ADMIN_API),
            ("import", Page::ADMIN_API),
        ],
    ),
    ("Keys", &[("keys", Page::AUTH), ("certs", Page::CERTIFICATES), ("join-token", Page::NODES)]),
    (
        "Cluster",
        &[
            ("nodes", Page::NODES_TABLE),
            ("leader", Page::CONTROL_PLANE),
            ("audit", Page::ADMIN_API),
            ("watch", Page::ADMIN_API),
            ("backup", Page::DISASTER_RECOVERY),
            ("backup-key", Page::DISASTER_RECOVERY),
            ("restore", Page::DISASTER_RECOVERY),
            ("force-new-cluster", Page::DISASTER_RECOVERY),
        ],
    ),
    (
        "Tools",
        &[
            ("config", Page::CONFIGURATION),
            ("debug", Page::TROUBLESHOOTING),
            ("anycast", Page::ANYCAST),
            ("completions", Page::COMPLETIONS),
            ("man", Page::COMPLETIONS),
            ("reference", Page::COMMANDS),
            ("help", Page::INDEX),
        ],
    ),
];

/// Returns the page of the docs about a command and its subcommands.
pub(crate) fn page_of(command: &str) -> Option<Page> {
    let mut all = GROUPS.iter().flat_map(|(_, commands)| *commands);
    all.find(|(name, _)| *name == command).map(|(_, page)| *page)
}
