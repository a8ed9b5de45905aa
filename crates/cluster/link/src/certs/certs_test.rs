use std::time::SystemTime;

use tempfile::TempDir;

use super::*;

fn days(days: u32) -> Validity {
    Validity::days(SystemTime::now(), days).unwrap()
}

fn authority_in(folder: &TempDir) -> AuthorityFiles {
    let files = AuthorityFiles::in_folder(folder.path());
    let authority = Authority::new("prod", days(30)).unwrap();
    files.write(&authority, &PrefixKey::random().unwrap(), IfExists::Refuse).unwrap();
    files
}

#[test]
fn an_authority_survives_its_files_and_knows_its_cluster() {
    let folder = TempDir::new().unwrap();
    let files = authority_in(&folder);
    let opened = files.open().unwrap();
    assert_eq!(opened.cluster(), "prod");
    assert_eq!(opened.certificate_pem(), std::fs::read_to_string(&files.certificate).unwrap());
    assert_eq!(opened.key_pem(), std::fs::read_to_string(&files.key).unwrap());
}

#[cfg(unix)]
#[test]
fn keys_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let files = authority_in(&folder);
    let node = NodeFiles::in_folder(folder.path(), "eu", "a");
    node.write(files.open().unwrap().issue("eu", "a", days(1)).unwrap(), IfExists::Refuse).unwrap();
    for key in [&files.key, &files.prefix_key, &node.key] {
        let mode = std::fs::metadata(key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", key.display());
    }
}

#[test]
fn nothing_is_replaced_unless_asked_for() {
    let folder = TempDir::new().unwrap();
    let files = authority_in(&folder);
    let before = std::fs::read(&files.key).unwrap();
    std::fs::remove_file(&files.certificate).unwrap();
    let authority = Authority::new("prod", days(30)).unwrap();
    let secret = PrefixKey::random().unwrap();
    let refused = files.write(&authority, &secret, IfExists::Refuse);
    assert!(matches!(refused, Err(CertificateWriteError::Exists(_))), "{refused:?}");
    assert_eq!(std::fs::read(&files.key).unwrap(), before);
    assert!(!files.certificate.exists(), "all or nothing");
    files.write(&authority, &secret, IfExists::Replace).unwrap();
    assert_eq!(std::fs::read_to_string(&files.key).unwrap(), authority.key_pem());
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 3, "nothing but the files is left: {left:?}");
}

#[test]
fn names_that_no_certificate_can_carry_are_refused() {
    assert!(matches!(Authority::new("Prod", days(1)), Err(CertsError::Name(_))));
    let authority = Authority::new("prod", days(1)).unwrap();
    assert!(matches!(authority.issue("eu/..", "a", days(1)), Err(CertsError::Name(_))));
    assert!(matches!(authority.issue("eu", "", days(1)), Err(CertsError::Name(_))));
}

#[test]
fn files_of_something_else_are_no_authority() {
    let authority = Authority::new("prod", days(1)).unwrap();
    let (node, key) = authority.issue("eu", "a", days(1)).unwrap();
    assert!(matches!(Authority::open(&node, &key), Err(CertsError::NoCluster)));
    assert!(Authority::open("no PEM", &key).is_err());
    assert!(Authority::open(authority.certificate_pem(), "no key").is_err());
}
