//! `spillway certs`: the cluster's CA, the nodes' certificates, the secret of prompt hashes.

mod args;
mod folder;
mod issue;
mod output;
mod renew;
mod request;
mod revoke;
mod rotate;
mod show;

use anyhow::{Context, Result};
use serde_json::json;
use spillway_link::certs::{Authority, AuthorityFiles, NodeFiles, PrefixKey};

pub(crate) use self::args::CertsCommand;
use self::args::{InitArgs, NodeArgs};
use self::issue::{NO_AUTHORITY, if_exists, validity, written};
use self::output::show;
use crate::cluster::{self, ClusterCertsCommand};

/// Carries out a `certs` command.
///
/// # Errors
/// Returns an error if a name can't be used in a certificate, or if a file exists already or can't
/// be read or written.
pub(crate) fn run(command: &CertsCommand) -> Result<()> {
    match command {
        CertsCommand::Init(args) => init(args),
        CertsCommand::Node(args) => node(args),
        CertsCommand::Show(args) => show::show(args),
        CertsCommand::Request(args) => request::request(args),
        CertsCommand::Sign(args) => request::sign(args),
        CertsCommand::Renew(args) => renew::renew(args),
        CertsCommand::RotateCa { command } => rotate::run(command),
        CertsCommand::Cluster(ClusterCertsCommand::Revoke(args)) if args.local => {
            let serial = cluster::serial(&args.certificate)?;
            revoke::local(&serial, &args.dir, args.out.as_ref(), args.change.dry_run)
        }
        CertsCommand::Cluster(command) => cluster::certs(command),
    }
}

fn init(args: &InitArgs) -> Result<()> {
    let authority = Authority::new(&args.cluster, validity(args.days)?)?;
    let prefix_key = PrefixKey::random().context("the system has no random numbers")?;
    let files = AuthorityFiles::in_folder(&args.dir);
    written(files.write(&authority, &prefix_key, if_exists(args.force)))?;
    let report = json!({
        "ok": true, "cluster": args.cluster, "days": args.days,
        "authority": files.certificate, "authority_key": files.key, "prefix_key": files.prefix_key,
    });
    let lines = [
        ("on every node", files.certificate.as_path()),
        ("on every node, secret", &files.prefix_key),
        ("on no node, secret", &files.key),
    ];
    show(args.json, &report, &lines)
}

fn node(args: &NodeArgs) -> Result<()> {
    let authority = AuthorityFiles::in_folder(&args.dir).open().context(NO_AUTHORITY)?;
    let validity = validity(args.days)?;
    let issued = authority.issue(&args.region, &args.node, validity)?;
    let out = args.out.as_ref().unwrap_or(&args.dir);
    let files = NodeFiles::in_folder(out, &args.region, &args.node);
    written(files.write(issued, if_exists(args.force)))?;
    let report = json!({
        "ok": true, "cluster": authority.cluster(), "region": args.region, "node": args.node,
        "days": args.days, "certificate": files.certificate, "key": files.key,
    });
    let lines =
        [("on this node", files.certificate.as_path()), ("on this node, secret", &files.key)];
    show(args.json, &report, &lines)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;
    use tempfile::TempDir;

    use super::*;
    use crate::cli::{Cli, CliCommand};

    /// Runs `spillway certs` with these words and `--dir` of the folder.
    fn certs(folder: &TempDir, words: &[&str]) -> Result<()> {
        let dir = folder.path().to_str().unwrap();
        let words = [&["spillway", "certs"], words, &["--dir", dir]].concat();
        let CliCommand::Certs { command } = Cli::try_parse_from(words).unwrap().command else {
            panic!("another command")
        };
        run(&command)
    }

    const INIT: [&str; 3] = ["init", "--cluster", "prod"];
    const NODE: [&str; 5] = ["node", "--region", "eu", "--node", "a"];

    #[test]
    fn an_authority_and_a_node_get_their_files() {
        let folder = TempDir::new().unwrap();
        certs(&folder, &INIT).unwrap();
        certs(&folder, &NODE).unwrap();
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["a.eu-key.pem", "a.eu.pem", "ca-key.pem", "ca.pem", "prefix.key"]);
        let prefix_key = fs::read_to_string(folder.path().join("prefix.key")).unwrap();
        PrefixKey::from_hex(&prefix_key).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn keys_are_for_their_owner_alone_and_stay_so_when_replaced() {
        use std::os::unix::fs::PermissionsExt;
        let folder = TempDir::new().unwrap();
        certs(&folder, &INIT).unwrap();
        certs(&folder, &NODE).unwrap();
        certs(&folder, &[&NODE[..], &["--force"]].concat()).unwrap();
        for name in ["a.eu-key.pem", "ca-key.pem", "prefix.key"] {
            let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn nothing_is_replaced_without_force() {
        let folder = TempDir::new().unwrap();
        let read = || fs::read(folder.path().join("ca-key.pem")).unwrap();
        certs(&folder, &INIT).unwrap();
        let before = read();
        let refused = certs(&folder, &INIT).unwrap_err();
        assert!(format!("{refused:#}").contains("--force"), "{refused:#}");
        assert_eq!(read(), before);
        certs(&folder, &[&INIT[..], &["--force"]].concat()).unwrap();
        assert_ne!(read(), before);
        certs(&folder, &NODE).unwrap();
        assert!(certs(&folder, &NODE).is_err());
    }

    #[test]
    fn a_certificate_is_revoked_by_the_authority_alone() {
        use spillway_link::certs::{certificates_of_pem, revocation_lists, serial_of_pem};
        let folder = TempDir::new().unwrap();
        certs(&folder, &INIT).unwrap();
        certs(&folder, &NODE).unwrap();
        let certificate = folder.path().join("a.eu.pem");
        let named = certificate.to_str().unwrap();
        for serial in [named, named, "5C:1D"] {
            certs(&folder, &["revoke", "--local", serial]).unwrap();
        }
        let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
        let authorities = certificates_of_pem(&read("ca.pem"));
        let (lists, faults) = revocation_lists(&read("revoked.pem"), &authorities);
        let serials: Vec<_> = lists.iter().flat_map(|list| list.serials().clone()).collect();
        assert_eq!(serials, [serial_of_pem(&read("a.eu.pem")).unwrap(), "5c1d".to_owned()]);
        assert_eq!(faults, []);
        let before = read("revoked.pem");
        certs(&folder, &["revoke", "--local", "5d", "--dry-run"]).unwrap();
        assert_eq!(read("revoked.pem"), before);
        for nonsense in ["0", "00:00", folder.path().join("ca.pem").to_str().unwrap()] {
            assert!(certs(&folder, &["revoke", "--local", nonsense]).is_err(), "{nonsense}");
        }
        assert_eq!(read("revoked.pem"), before);
        let other = TempDir::new().unwrap();
        assert!(certs(&other, &["revoke", "--local", named]).is_err(), "no authority");
        certs(&other, &INIT).unwrap();
        fs::write(other.path().join("revoked.pem"), read("revoked.pem")).unwrap();
        let refused = certs(&other, &["revoke", "--local", named]).unwrap_err();
        assert!(format!("{refused:#}").contains("has not signed it"), "{refused:#}");
    }

    #[test]
    fn a_node_needs_an_authority_and_a_name_that_fits() {
        let folder = TempDir::new().unwrap();
        let refused = certs(&folder, &NODE).unwrap_err();
        assert!(format!("{refused:#}").contains("spillway certs init"), "{refused:#}");
        certs(&folder, &INIT).unwrap();
        let refused = certs(&folder, &["node", "--region", "EU", "--node", "a"]).unwrap_err();
        assert!(format!("{refused:#}").contains("can't name a region"), "{refused:#}");
    }
}
