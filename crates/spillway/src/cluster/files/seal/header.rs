//! Header of an encrypted file: the file key, wrapped for each recipient.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use super::error::SealError;
use super::keys::{Identity, Recipient};
use super::lock::{Lock, Passphrase, Unlock};
use super::secret::{FileKey, random};

/// First line of every encrypted file.
pub(super) const MARK: &[u8] = b"age-encryption.org/v1\n";
/// Labels for which keys are derived.
const X25519_LABEL: &[u8] = b"age-encryption.org/v1/X25519";
const SCRYPT_LABEL: &[u8] = b"age-encryption.org/v1/scrypt";
/// Work factor for each guess of a passphrase: a quarter of a GiB and about a second.
const WORK: u8 = 18;
/// Highest work factor that is accepted: a file could ask for any amount of memory.
const WORK_MAX: u8 = 20;
/// Bytes of a wrapped file key with its authentication tag.
const WRAPPED_BYTES: usize = 32;
/// Most recipients of a file. Each costs the reader a key agreement.
const STANZAS_MAX: usize = 1_024;
const END: &[u8] = b"---";

/// Header of an encrypted file.
#[derive(Debug)]
pub(super) struct Header {
    stanzas: Vec<Stanza>,
    /// Bytes that the MAC covers: the header up to and with the three hyphens.
    covered: Vec<u8>,
    mac: Vec<u8>,
}

/// The file key, wrapped for one recipient or passphrase.
#[derive(Debug)]
enum Stanza {
    X25519 {
        share: [u8; 32],
        wrapped: [u8; WRAPPED_BYTES],
    },
    Scrypt {
        salt: [u8; 16],
        work: u8,
        wrapped: [u8; WRAPPED_BYTES],
    },
    /// A kind of stanza that this program does not know.
    Other,
}

impl Header {
    /// Wraps the key of a file.
    pub(super) fn wrap(key: &FileKey, lock: &Lock) -> Result<Self, SealError> {
        let stanzas = match lock {
            Lock::Passphrase(passphrase) => vec![Stanza::for_passphrase(key, passphrase)?],
            Lock::Recipients(all) => {
                let each = all.iter().map(|recipient| Stanza::for_recipient(key, recipient));
                each.collect::<Result<_, _>>()?
            }
        };
        let mut covered = MARK.to_vec();
        stanzas.iter().for_each(|stanza| stanza.write(&mut covered));
        covered.extend(END);
        Ok(Self { stanzas, covered, mac: Vec::new() })
    }

    /// Returns the header in the form that the file has.
    pub(super) fn to_bytes(&self, key: &FileKey) -> Vec<u8> {
        let tag = hmac::sign(&mac_key(key), &self.covered);
        let mut bytes = self.covered.clone();
        bytes.extend(format!(" {}\n", BASE64.encode(tag)).as_bytes());
        bytes
    }

    /// Splits a file into its header and the payload.
    pub(super) fn read(sealed: &[u8]) -> Result<(Self, &[u8]), SealError> {
        let cut = || SealError::Damaged("its head is cut off");
        let mut rest = sealed.strip_prefix(MARK).ok_or_else(cut)?;
        let mut stanzas = Vec::new();
        loop {
            let (line, after) = line(rest).ok_or_else(cut)?;
            if let Some(mac) = line.strip_prefix("---") {
                let mac = mac.strip_prefix(' ').and_then(|text| BASE64.decode(text).ok());
                let mac = mac.ok_or(SealError::Damaged("its head has no checksum"))?;
                let covered = sealed[..sealed.len() - rest.len() + END.len()].to_vec();
                return Ok((Self { stanzas, covered, mac }, after));
            }
            let (body, after) = body(after).ok_or_else(cut)?;
            stanzas.push(Stanza::read(line, &body)?);
            if stanzas.len() > STANZAS_MAX {
                return Err(SealError::Damaged("it has too many recipients"));
            }
            rest = after;
        }
    }

    /// Unwraps the file key.
    pub(super) fn unwrap(&self, unlock: &Unlock) -> Result<FileKey, SealError> {
        if let [Stanza::Scrypt { salt, work, wrapped }] = &self.stanzas[..] {
            let passphrase = unlock.passphrase.as_ref().ok_or(SealError::NoPassphrase)?;
            let key = scrypt_key(passphrase, salt, *work)?;
            return opened(&key, wrapped).ok_or(SealError::WrongPassphrase);
        }
        // The format forbids it: who uses a passphrase expects that only those who know it made the
        // file.
        if self.stanzas.iter().any(|stanza| matches!(stanza, Stanza::Scrypt { .. })) {
            return Err(SealError::Damaged("it has a passphrase beside other keys"));
        }
        if unlock.identities.is_empty() {
            return Err(SealError::NoIdentity);
        }
        let mut keys = self.stanzas.iter().flat_map(|stanza| {
            unlock.identities.iter().filter_map(move |identity| stanza.unwrap(identity))
        });
        keys.next().ok_or(SealError::WrongIdentity)
    }

    /// Checks the MAC of the header.
    pub(super) fn check(&self, key: &FileKey) -> Result<(), SealError> {
        let checked = hmac::verify(&mac_key(key), &self.covered, &self.mac);
        checked.map_err(|_| SealError::Damaged("the checksum of its head is another"))
    }
}

impl Stanza {
    fn for_recipient(key: &FileKey, recipient: &Recipient) -> Result<Self, SealError> {
        let secret = StaticSecret::from(*Zeroizing::new(random::<32>()?));
        let share = PublicKey::from(&secret);
        let wrap = x25519_key(&secret, &recipient.0, &share, &recipient.0);
        let wrap = wrap.ok_or_else(|| SealError::BadRecipient(recipient.to_string()))?;
        Ok(Self::X25519 { share: share.to_bytes(), wrapped: sealed(&wrap, key)? })
    }

    fn for_passphrase(key: &FileKey, passphrase: &Passphrase) -> Result<Self, SealError> {
        let salt = random()?;
        let wrap = scrypt_key(passphrase, &salt, WORK)?;
        Ok(Self::Scrypt { salt, work: WORK, wrapped: sealed(&wrap, key)? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (head, wrapped) = match self {
            Self::X25519 { share, wrapped } => {
                (format!("-> X25519 {}", BASE64.encode(share)), wrapped)
            }
            Self::Scrypt { salt, work, wrapped } => {
                (format!("-> scrypt {} {work}", BASE64.encode(salt)), wrapped)
            }
            // Never written, only read.
            Self::Other => return,
        };
        out.extend(format!("{head}\n{}\n", BASE64.encode(wrapped)).as_bytes());
    }

    fn read(line: &str, body: &[u8]) -> Result<Self, SealError> {
        let bad = || SealError::Damaged("a key in its head can't be read");
        let words: Vec<&str> = line.strip_prefix("-> ").ok_or_else(bad)?.split(' ').collect();
        let decoded = |text: &str| BASE64.decode(text).map_err(|_| bad());
        let wrapped = || body.try_into().map_err(|_| bad());
        match words[..] {
            ["X25519", share] => {
                let share = decoded(share)?.try_into().map_err(|_| bad())?;
                Ok(Self::X25519 { share, wrapped: wrapped()? })
            }
            ["scrypt", salt, work] => {
                let salt = decoded(salt)?.try_into().map_err(|_| bad())?;
                let work = work.parse().map_err(|_| bad())?;
                Ok(Self::Scrypt { salt, work, wrapped: wrapped()? })
            }
            // A known kind with a wrong number of words.
            ["X25519" | "scrypt", ..] => Err(bad()),
            // Other tools may have added recipients of other kinds; one known recipient is enough.
            _ => Ok(Self::Other),
        }
    }

    fn unwrap(&self, identity: &Identity) -> Option<FileKey> {
        let Self::X25519 { share, wrapped } = self else { return None };
        let share = PublicKey::from(*share);
        let key = x25519_key(&identity.0, &share, &share, &identity.recipient().0)?;
        opened(&key, wrapped)
    }
}

/// Splits off one line, without its end.
fn line(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 1..]))
}

/// Decodes the body of a stanza: lines of 64 characters, the last one shorter. Returns the rest,
/// too.
fn body(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut body = Vec::new();
    loop {
        let (text, after) = line(bytes)?;
        if text.len() > 64 {
            return None;
        }
        body.extend(BASE64.decode(text).ok()?);
        // A body of full lines only is followed by an empty line.
        if text.len() < 64 {
            return Some((body, after));
        }
        bytes = after;
    }
}

/// Derives the wrapping key of an X25519 agreement; None if the other's share is no valid point.
fn x25519_key(
    secret: &StaticSecret,
    other: &PublicKey,
    share: &PublicKey,
    recipient: &PublicKey,
) -> Option<LessSafeKey> {
    let shared = secret.diffie_hellman(other);
    // Such a point makes the shared secret zero, whatever the private key is.
    if !shared.was_contributory() {
        return None;
    }
    let salt = [share.as_bytes().as_slice(), recipient.as_bytes()].concat();
    let key = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt).extract(shared.as_bytes());
    let okm = key.expand(&[X25519_LABEL], &CHACHA20_POLY1305).ok()?;
    Some(LessSafeKey::new(UnboundKey::from(okm)))
}

fn scrypt_key(
    passphrase: &Passphrase,
    salt: &[u8; 16],
    work: u8,
) -> Result<LessSafeKey, SealError> {
    let too_much = SealError::Damaged("its passphrase takes more work than is allowed");
    if !(1..=WORK_MAX).contains(&work) {
        return Err(too_much);
    }
    let mut key = Zeroizing::new([0; 32]);
    let salt = [SCRYPT_LABEL, salt].concat();
    let params = scrypt::Params::new(work, 8, 1, key.len());
    let derived = params
        .ok()
        .and_then(|params| scrypt::scrypt(passphrase.0.as_bytes(), &salt, &params, &mut *key).ok());
    let key = derived.and_then(|()| UnboundKey::new(&CHACHA20_POLY1305, &*key).ok());
    key.map(LessSafeKey::new).ok_or(too_much)
}

/// Returns the nonce, which is always zero: each key wraps one file key.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn sealed(wrap: &LessSafeKey, key: &FileKey) -> Result<[u8; WRAPPED_BYTES], SealError> {
    let mut text = key.to_vec();
    let done = wrap.seal_in_place_append_tag(nonce(), Aad::empty(), &mut text).ok();
    let wrapped = done.and_then(|()| text.try_into().ok());
    wrapped.ok_or(SealError::Damaged("its key can't be wrapped"))
}

fn opened(wrap: &LessSafeKey, wrapped: &[u8; WRAPPED_BYTES]) -> Option<FileKey> {
    let mut text = Zeroizing::new(*wrapped);
    let key = wrap.open_in_place(nonce(), Aad::empty(), &mut *text).ok()?;
    Some(FileKey::new((&*key).try_into().ok()?))
}

fn mac_key(key: &FileKey) -> hmac::Key {
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&**key);
    #[expect(clippy::expect_used, reason = "32 bytes are less than HKDF gives")]
    let okm = prk.expand(&[b"header"], hmac::HMAC_SHA256).expect("the length is fixed");
    hmac::Key::from(okm)
}
