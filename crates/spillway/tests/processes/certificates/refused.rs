//! Certificates that can't be used are refused, and the ones in use stay.

use std::time::{Duration, SystemTime};

use spillway_link::certs::{
    Authority, AuthorityFiles, IfExists, NodeFiles, PrefixKey, Validity, write_public, write_secret,
};
use tempfile::TempDir;

use super::world::{certs, done, refused};

struct Desk {
    folder: TempDir,
}

impl Desk {
    /// Creates a CA, and the certificate of `test/eu/a`.
    fn new() -> Self {
        let desk = Self { folder: TempDir::new().unwrap() };
        done(&["init", "--cluster", "test", "--dir", &desk.at("ca")]);
        done(&["node", "--dir", &desk.at("ca"), "--region", "eu", "--node", "a"]);
        desk
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn authority(&self) -> Authority {
        AuthorityFiles::in_folder(&self.folder.path().join("ca")).open().unwrap()
    }

    /// Puts a pair of certificate and key where a renewal takes it from.
    fn offer(&self, (certificate, key): (String, String)) {
        let next = NodeFiles::in_folder(&self.folder.path().join("next"), "eu", "a");
        write_public(&next.certificate, certificate, IfExists::Replace).unwrap();
        write_secret(&next.key, key, IfExists::Replace).unwrap();
    }

    fn pair(&self) -> [Vec<u8>; 2] {
        ["a.eu.pem", "a.eu-key.pem"].map(|name| std::fs::read(self.at("ca") + "/" + name).unwrap())
    }

    /// Renews from the offered pair, which must fail, and returns the error.
    fn refused(&self) -> String {
        let before = self.pair();
        let who = ["--region", "eu", "--node", "a", "--out", &self.at("ca")];
        let said = refused(&[&["renew", "--from", &self.at("next")], &who[..]].concat());
        assert!(said.contains("nothing was replaced"), "{said}");
        assert_eq!(self.pair(), before);
        said
    }
}

fn days(days: u32) -> Validity {
    Validity::days(SystemTime::now(), days).unwrap()
}

#[test]
fn a_pair_that_the_node_could_not_use_is_never_put_in_its_place() {
    let desk = Desk::new();
    let authority = desk.authority();
    let past = SystemTime::now() - Duration::from_secs(10 * 86_400);
    desk.offer(authority.issue("eu", "a", Validity::days(past, 1).unwrap()).unwrap());
    assert!(desk.refused().contains("expired"), "{}", desk.refused());
    desk.offer(authority.issue("eu", "b", days(9)).unwrap());
    assert!(desk.refused().contains("it is the certificate of test/eu/b"), "{}", desk.refused());
    let other = Authority::new("test", days(9)).unwrap();
    desk.offer(other.issue("eu", "a", days(9)).unwrap());
    assert!(desk.refused().contains("does not vouch for it"), "{}", desk.refused());
    let strange = Authority::new("other", days(9)).unwrap();
    desk.offer(strange.issue("eu", "a", days(9)).unwrap());
    assert!(desk.refused().contains("does not vouch for it"), "{}", desk.refused());
    let (certificate, _) = authority.issue("eu", "a", days(9)).unwrap();
    let (_, key) = authority.issue("eu", "a", days(9)).unwrap();
    desk.offer((certificate.clone(), key.clone()));
    assert!(desk.refused().contains("a.eu-key.pem"), "{}", desk.refused());
    // Half of a file is no certificate at all.
    let half = certificate[..certificate.len() / 2].to_owned();
    desk.offer((half, key));
    let before = desk.pair();
    let who = ["--region", "eu", "--node", "a", "--out", &desk.at("ca")];
    let said = refused(&[&["renew", "--from", &desk.at("next")], &who[..]].concat());
    assert!(said.contains("there is no new certificate"), "{said}");
    assert_eq!(desk.pair(), before);
    desk.offer(authority.issue("eu", "a", days(9)).unwrap());
    done(&[&["renew", "--from", &desk.at("next")], &who[..]].concat());
    assert_ne!(desk.pair(), before);
}

#[test]
fn the_old_authority_does_not_go_before_somebody_says_that_it_is_not_needed() {
    let folder = TempDir::new().unwrap();
    let ca = folder.path().to_str().unwrap();
    done(&["init", "--cluster", "test", "--dir", ca]);
    let finish = ["rotate-ca", "finish", "--dir", ca];
    done(&["rotate-ca", "begin", "--dir", ca]);
    assert!(refused(&["rotate-ca", "begin", "--dir", ca]).contains("rotate-ca issue"));
    done(&["node", "--dir", ca, "--region", "eu", "--node", "a"]);
    let file = format!("{ca}/a.eu.pem");
    let pair = || ["a.eu.pem", "a.eu-key.pem"].map(|name| std::fs::read(folder.path().join(name)));
    let before = pair().map(Result::unwrap);
    assert!(refused(&finish).contains("a.eu.pem"), "the old CA has signed it");
    let issued = done(&["rotate-ca", "issue", "--dir", ca]);
    assert_eq!(issued["renewed"], serde_json::json!([file]));
    assert_ne!(pair().map(Result::unwrap), before);
    let again = done(&["rotate-ca", "issue", "--dir", ca]);
    assert_eq!(again["renewed"], serde_json::json!([]), "it is of the new one already");
    for name in ["a.eu.pem", "a.eu-key.pem"] {
        std::fs::rename(folder.path().join(name), folder.path().join(format!("{name}.away")))
            .unwrap();
    }
    assert!(refused(&finish).contains("name their certificates"));
    done(&[&finish[..], &[&format!("{file}.away")]].concat());
    assert!(!folder.path().join("ca-old-key.pem").exists());
    assert!(refused(&finish).contains("no rotation") || refused(&finish).contains("name their"));
}

#[test]
fn nothing_is_renewed_as_long_as_it_is_good_or_was_never_made() {
    let desk = Desk::new();
    let before = desk.pair();
    let ca = desk.at("ca");
    let renew = |node: &'static str, more: &[&str]| {
        let words = ["renew", "--dir", &ca, "--region", "eu", "--node", node];
        certs(&[&words[..], more, &["--json"]].concat())
    };
    let good = renew("a", &["--if-days-left", "30"]);
    assert!(String::from_utf8_lossy(&good.stdout).contains("\"renewed\":false"), "{good:?}");
    assert_eq!(desk.pair(), before);
    let due = renew("a", &["--if-days-left", "400", "--keep-key"]);
    assert!(String::from_utf8_lossy(&due.stdout).contains("\"renewed\":true"), "{due:?}");
    assert_ne!(desk.pair()[0], before[0]);
    assert_eq!(desk.pair()[1], before[1], "the key is kept");
    let never = renew("b", &[]);
    assert!(String::from_utf8_lossy(&never.stderr).contains("certs node"), "{never:?}");
}

#[test]
fn show_tells_ends_keys_and_authorities_and_fails_when_something_is_due() {
    let desk = Desk::new();
    let ca = desk.at("ca");
    let shown = done(&["show", "--dir", &ca]);
    assert_eq!(shown["rotation"]["phase"], "stable");
    let all = shown["certificates"].as_array().unwrap();
    let names: Vec<_> = all.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["test/eu/a", "test"]);
    assert_eq!((&all[0]["is_key_its_own"], &all[0]["kind"]), (&true.into(), &"node".into()));
    assert!((363..=365).contains(&all[0]["days_left"].as_i64().unwrap()), "{shown}");
    assert_eq!(all[0]["authority"], all[1]["fingerprint"]);
    let text = certs(&["show", "--dir", &ca]);
    let text = String::from_utf8(text.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("test/eu/a")).unwrap();
    assert!(line.contains("vouches") && line.contains("fits") && line.contains("GMT"), "{text}");
    assert!(text.contains("signs"), "{text}");

    let soon = refused(&["show", "--dir", &ca, "--warn-days", "400"]);
    assert!(soon.contains("a.eu.pem ends in 36"), "{soon}");
    let file = format!("{ca}/a.eu.pem");
    assert_eq!(done(&["show", &file])["certificates"].as_array().unwrap().len(), 1);

    let other = AuthorityFiles::in_folder(&desk.folder.path().join("other"));
    let authority = Authority::new("test", days(90)).unwrap();
    other.write(&authority, &PrefixKey::random().unwrap(), IfExists::Refuse).unwrap();
    let strange = refused(&["show", &file, "--authority", other.certificate.to_str().unwrap()]);
    assert!(strange.contains("another authority has signed it"), "{strange}");
    let key = desk.authority().issue("eu", "a", days(1)).unwrap().1;
    std::fs::write(format!("{ca}/a.eu-key.pem"), key).unwrap();
    let strange = refused(&["show", &file]);
    assert!(strange.contains("is another's"), "{strange}");
    let past = SystemTime::now() - Duration::from_secs(10 * 86_400);
    let ended = desk.authority().issue("eu", "a", Validity::days(past, 1).unwrap()).unwrap();
    NodeFiles::in_folder(desk.folder.path(), "eu", "a").write(ended, IfExists::Replace).unwrap();
    let ended = refused(&["show", &desk.at("a.eu.pem")]);
    assert!(ended.contains("has ended 9 days ago"), "{ended}");
    let nothing = refused(&["show", &format!("{ca}/prefix.key")]);
    assert!(nothing.contains("no certificate in PEM form"), "{nothing}");
}
