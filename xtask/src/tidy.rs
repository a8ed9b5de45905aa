//! `cargo xtask tidy`: checks rules of this project that no public tool knows.
//!
//! A check is a pure function from the content of the tree to findings, so that each one is tested
//! on a planted violation. Only [`Tree::load`] reads anything.

mod circles;
mod crates;
mod documents;
mod finding;
mod imports;
mod lines;
mod manifests;
mod procedures;
mod reasons;
mod text;
mod tree;

use std::path::Path;

use anyhow::Result;

use crate::report::CheckOutcome;
use finding::{Finding, Severity};
use tree::Tree;

/// Prints the findings, as JSON if asked for. Returns true if there is no violation.
pub(crate) fn run(root: &Path, json: bool) -> Result<bool> {
    let findings = check(&Tree::load(root)?);
    if json {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        print(&findings);
    }
    Ok(count(&findings, Severity::Violation) == 0)
}

/// Checks the rules as a step of `verify`.
pub(crate) fn check_and_print(root: &Path) -> Result<CheckOutcome> {
    let findings = check(&Tree::load(root)?);
    print(&findings);
    Ok(match count(&findings, Severity::Violation) {
        0 => CheckOutcome::Passed,
        violations => CheckOutcome::Failed(format!("{violations} violations")),
    })
}

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(lines::check(tree));
    findings.extend(text::check(tree));
    findings.extend(circles::check(tree));
    findings.extend(imports::check(tree));
    findings.extend(crates::check(tree));
    findings.extend(manifests::check(tree));
    findings.extend(procedures::check(tree));
    findings.extend(reasons::check(tree));
    findings.extend(documents::check(tree));
    findings
}

fn print(findings: &[Finding]) {
    for finding in findings {
        eprintln!("{finding}");
    }
    eprintln!(
        "tidy: {} violations, {} warnings",
        count(findings, Severity::Violation),
        count(findings, Severity::Warning)
    );
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}
