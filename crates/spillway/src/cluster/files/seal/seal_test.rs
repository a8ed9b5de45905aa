//! Tests of encrypted files.

use std::path::Path;

use zeroize::Zeroizing;

use super::*;

fn passphrase(text: &str) -> Passphrase {
    Passphrase(Zeroizing::new(text.to_owned()))
}

fn by_key(identity: &Identity) -> Unlock {
    Unlock { passphrase: None, identities: vec![identity.clone()] }
}

fn by_passphrase(text: &str) -> Unlock {
    Unlock { passphrase: Some(passphrase(text)), identities: Vec::new() }
}

#[test]
fn each_recipient_decrypts_what_was_encrypted_for_several() {
    let [one, two, other] = [(); 3].map(|()| Identity::new().unwrap());
    let lock = Lock::Recipients(vec![one.recipient(), two.recipient()]);
    for bytes in [0, 1, 65_535, 65_536, 65_537, 200_000] {
        let plain: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
        let sealed = seal(&plain, &lock).unwrap();
        assert!(is_sealed(&sealed) && !is_sealed(&plain));
        for identity in [&one, &two] {
            assert_eq!(open(&sealed, &by_key(identity)).unwrap(), plain, "{bytes} bytes");
        }
        let wrong = open(&sealed, &by_key(&other)).unwrap_err();
        assert!(matches!(wrong, SealError::WrongIdentity), "{wrong}");
        let none = open(&sealed, &by_passphrase("x")).unwrap_err();
        assert!(matches!(none, SealError::NoIdentity), "{none}");
    }
}

#[test]
fn a_passphrase_decrypts_what_was_encrypted_with_it() {
    let sealed = seal(b"state", &Lock::Passphrase(passphrase("correct horse"))).unwrap();
    assert!(!sealed.windows(5).any(|bytes| bytes == b"state"));
    assert_eq!(open(&sealed, &by_passphrase("correct horse")).unwrap(), b"state");
    let wrong = open(&sealed, &by_passphrase("Correct horse")).unwrap_err();
    assert!(matches!(wrong, SealError::WrongPassphrase), "{wrong}");
    let none = open(&sealed, &Unlock::default()).unwrap_err();
    assert!(matches!(none, SealError::NoPassphrase), "{none}");
}

#[test]
fn every_cut_and_every_altered_byte_is_noticed() {
    let identity = Identity::new().unwrap();
    let lock = Lock::Recipients(vec![identity.recipient()]);
    let sealed = seal(&[7; 300], &lock).unwrap();
    for end in 0..sealed.len() {
        assert!(open(&sealed[..end], &by_key(&identity)).is_err(), "cut at {end}");
    }
    for at in 0..sealed.len() {
        let mut altered = sealed.clone();
        altered[at] ^= 1;
        assert!(open(&altered, &by_key(&identity)).is_err(), "byte {at}");
    }
    let long = [&sealed[..], &[0]].concat();
    assert!(open(&long, &by_key(&identity)).is_err());
    // Whole chunks that are left out or swapped.
    let sealed = seal(&[7; 3 << 16], &lock).unwrap();
    let chunk = (64 << 10) + 16;
    let begin = sealed.len() - 3 * chunk;
    let (head, chunks) = sealed.split_at(begin);
    for order in [&[0, 1][..], &[1, 0, 2], &[0, 2], &[0, 1, 2, 2]] {
        let mut altered = head.to_vec();
        order.iter().for_each(|n| altered.extend(&chunks[n * chunk..(n + 1) * chunk]));
        assert!(open(&altered, &by_key(&identity)).is_err(), "{order:?}");
    }
}

#[test]
fn a_file_that_asks_for_too_much_work_is_refused() {
    let sealed = seal(b"x", &Lock::Passphrase(passphrase("p"))).unwrap();
    let text = sealed.windows(4).position(|bytes| bytes == b" 18\n").unwrap();
    let mut altered = sealed;
    altered[text + 1..text + 3].copy_from_slice(b"30");
    let fault = open(&altered, &by_passphrase("p")).unwrap_err();
    assert!(fault.to_string().contains("more work than is allowed"), "{fault}");
}

#[test]
fn keys_are_read_as_they_are_written() {
    let identity = Identity::new().unwrap();
    let text = identity.to_file();
    assert!(text.contains("AGE-SECRET-KEY-1") && text.contains("# public key: age1"), "a key");
    assert!(!format!("{identity:?}").contains("SECRET"));
    let place = Path::new("key");
    let read = Identity::read_all(&text, place).unwrap();
    assert_eq!(read[0].recipient(), identity.recipient());
    let public = identity.recipient().to_string();
    assert_eq!(public.parse::<Recipient>().unwrap(), identity.recipient());
    for wrong in ["", "age1", &public[..61], &public.replace("age1", "age2"), "AGE-SECRET-KEY-1"] {
        assert!(wrong.parse::<Recipient>().is_err(), "{wrong}");
    }
    for wrong in ["", "# nothing", public.as_str(), "AGE-SECRET-KEY-1QQ"] {
        assert!(Identity::read_all(wrong, place).is_err(), "{wrong}");
    }
}

/// Replaces the stanzas of an encrypted file.
fn with_stanzas(sealed: &[u8], stanzas: &str) -> Vec<u8> {
    let end = sealed.windows(4).position(|bytes| bytes == b"\n---").unwrap() + 1;
    [MARK, stanzas.as_bytes(), &sealed[end..]].concat()
}

/// Returns the stanzas of an encrypted file.
fn stanzas(sealed: &[u8]) -> String {
    let end = sealed.windows(4).position(|bytes| bytes == b"\n---").unwrap() + 1;
    String::from_utf8(sealed[MARK.len()..end].to_vec()).unwrap()
}

#[test]
fn a_head_with_an_added_recipient_is_noticed() {
    let [mine, other] = [(); 2].map(|()| Identity::new().unwrap());
    let lock = |identity: &Identity| Lock::Recipients(vec![identity.recipient()]);
    let sealed = seal(b"state", &lock(&mine)).unwrap();
    let added = stanzas(&seal(b"x", &lock(&other)).unwrap());
    let altered = with_stanzas(&sealed, &(stanzas(&sealed) + &added));
    let fault = open(&altered, &by_key(&mine)).unwrap_err();
    assert!(fault.to_string().contains("checksum of its head"), "{fault}");
}

#[test]
fn a_passphrase_stands_alone_in_a_head() {
    let mine = Identity::new().unwrap();
    let sealed = seal(b"state", &Lock::Recipients(vec![mine.recipient()])).unwrap();
    // No valid passphrase stanza, so that no work is done for it.
    let scrypt = format!("-> scrypt {} 18\n{}\n", "A".repeat(22), "A".repeat(43));
    let altered = with_stanzas(&sealed, &(stanzas(&sealed) + &scrypt));
    let fault = open(&altered, &by_key(&mine)).unwrap_err();
    assert!(fault.to_string().contains("beside other keys"), "{fault}");
}

#[test]
fn a_head_has_a_limit_of_recipients() {
    let mine = Identity::new().unwrap();
    let sealed = seal(b"state", &Lock::Recipients(vec![mine.recipient()])).unwrap();
    let many = with_stanzas(&sealed, &stanzas(&sealed).repeat(1_025));
    let fault = open(&many, &by_key(&mine)).unwrap_err();
    assert!(fault.to_string().contains("too many recipients"), "{fault}");
    let long = with_stanzas(&sealed, &format!("-> other\n{}\n\n", "A".repeat(68)));
    assert!(matches!(open(&long, &by_key(&mine)), Err(SealError::Damaged(_))));
}

#[test]
fn a_recipient_that_agrees_with_everybody_is_refused() {
    let all_zero = Recipient(x25519_dalek::PublicKey::from([0; 32]));
    let fault = seal(b"state", &Lock::Recipients(vec![all_zero])).unwrap_err();
    assert!(matches!(fault, SealError::BadRecipient(_)), "{fault}");
}
