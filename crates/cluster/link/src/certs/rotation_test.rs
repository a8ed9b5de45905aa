use std::time::SystemTime;

use tempfile::TempDir;

use super::*;

fn days(days: u32) -> Validity {
    Validity::days(SystemTime::now(), days).unwrap()
}

struct Desk {
    folder: TempDir,
    files: AuthorityFiles,
}

impl Desk {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let files = AuthorityFiles::in_folder(folder.path());
        let authority = Authority::new("prod", days(30)).unwrap();
        files.write(&authority, &PrefixKey::random().unwrap(), IfExists::Refuse).unwrap();
        Self { folder, files }
    }

    fn at(&self) -> Rotation {
        Rotation::read(self.files.clone()).unwrap()
    }

    fn phase(&self) -> RotationPhase {
        self.at().phase()
    }

    fn believed(&self) -> usize {
        certificates_of_pem(&std::fs::read(&self.files.certificate).unwrap()).len()
    }

    /// Returns the position in ca.pem of the CA that signs now.
    fn signs(&self) -> usize {
        let (certificate, _) = self.files.open().unwrap().issue("eu", "a", days(1)).unwrap();
        let pem = std::fs::read(&self.files.certificate).unwrap();
        let chain = certificates_of_pem(certificate.as_bytes());
        authority_of(&chain, &certificates_of_pem(&pem), SystemTime::now()).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn an_authority_is_replaced_in_three_steps() {
    let desk = Desk::new();
    let old = std::fs::read_to_string(&desk.files.certificate).unwrap();
    assert_eq!((desk.phase(), desk.believed()), (RotationPhase::Stable, 1));
    desk.at().begin(days(60)).unwrap();
    assert_eq!((desk.phase(), desk.believed(), desk.signs()), (RotationPhase::Begun, 2, 0));
    desk.at().issue().unwrap();
    assert_eq!((desk.phase(), desk.believed(), desk.signs()), (RotationPhase::Issuing, 2, 1));
    desk.at().finish().unwrap();
    assert_eq!((desk.phase(), desk.believed(), desk.signs()), (RotationPhase::Stable, 1, 0));
    let new = std::fs::read_to_string(&desk.files.certificate).unwrap();
    assert!(!new.contains(&old) && !old.contains(&new));
    assert_eq!(desk.names(), ["ca-key.pem", "ca.pem", "prefix.key"], "no key is left behind");
    assert_eq!(desk.files.open().unwrap().cluster(), "prod");
}

#[test]
fn steps_are_taken_in_their_order_and_once() {
    let desk = Desk::new();
    let refused = |result: Result<(), RotationError>| {
        let fault = result.unwrap_err();
        assert!(matches!(fault, RotationError::Order(_)), "{fault}");
    };
    refused(desk.at().issue());
    refused(desk.at().finish());
    desk.at().begin(days(60)).unwrap();
    refused(desk.at().begin(days(60)));
    refused(desk.at().finish());
    desk.at().issue().unwrap();
    refused(desk.at().issue());
    refused(desk.at().begin(days(60)));
}

#[test]
fn a_step_that_was_cut_short_is_taken_again() {
    let desk = Desk::new();
    // `begin` was interrupted: it had written the key and nothing else.
    std::fs::write(desk.files.next_key(), "left over").unwrap();
    desk.at().begin(days(60)).unwrap();
    // `issue` was interrupted: it had kept the old key and not changed the other.
    std::fs::copy(&desk.files.key, desk.files.old_key()).unwrap();
    assert_eq!(desk.phase(), RotationPhase::Begun);
    desk.at().issue().unwrap();
    // `finish` was interrupted: it had written ca.pem and nothing else.
    let newest = desk.at().newest().to_owned();
    std::fs::write(&desk.files.certificate, newest).unwrap();
    assert_eq!(desk.phase(), RotationPhase::Stable);
    desk.at().finish().unwrap();
    assert!(!desk.files.old_key().exists());
}

#[test]
fn a_lost_or_exchanged_key_is_noticed_before_anything_is_written() {
    let desk = Desk::new();
    desk.at().begin(days(60)).unwrap();
    let before = std::fs::read(&desk.files.key).unwrap();
    let strange = Authority::new("prod", days(1)).unwrap();
    std::fs::write(desk.files.next_key(), strange.key_pem()).unwrap();
    let fault = desk.at().issue().unwrap_err();
    assert!(fault.to_string().contains("belongs to none"), "{fault}");
    std::fs::remove_file(desk.files.next_key()).unwrap();
    let fault = desk.at().issue().unwrap_err();
    assert!(fault.to_string().contains("ca-next-key.pem"), "{fault}");
    assert_eq!(std::fs::read(&desk.files.key).unwrap(), before);
}

#[test]
fn three_authorities_are_too_many() {
    let desk = Desk::new();
    let one = std::fs::read_to_string(&desk.files.certificate).unwrap();
    let more = || Authority::new("prod", days(1)).unwrap().certificate_pem().to_owned();
    std::fs::write(&desk.files.certificate, [one, more(), more()].concat()).unwrap();
    let fault = Rotation::read(AuthorityFiles::in_folder(desk.folder.path())).unwrap_err();
    assert!(fault.to_string().contains("3 certificates"), "{fault}");
}
