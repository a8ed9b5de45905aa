//! Payload of an encrypted file: chunks that are each authentic, and in their order.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;

use super::error::SealError;
use super::secret::FileKey;

const NONCE_BYTES: usize = 16;
const CHUNK_BYTES: usize = 64 << 10;
const TAG_BYTES: usize = 16;

/// Appends `plain`, encrypted, to `out`.
pub(super) fn seal(
    key: &FileKey,
    salt: &[u8; NONCE_BYTES],
    plain: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), SealError> {
    let key = chunk_key(key, salt)?;
    out.extend(salt);
    // An empty file has one empty chunk.
    let count = plain.len().div_ceil(CHUNK_BYTES).max(1);
    for number in 0..count {
        let end = plain.len().min((number + 1) * CHUNK_BYTES);
        let mut chunk = plain[number * CHUNK_BYTES..end].to_vec();
        let nonce = nonce(number as u64, number + 1 == count);
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut chunk)
            .map_err(|_| SealError::Damaged("it is too long to be encrypted"))?;
        out.extend(chunk);
    }
    Ok(())
}

/// Decrypts all chunks. The last one is marked, so that a cut between two chunks is noticed.
pub(super) fn open(key: &FileKey, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
    let cut = || SealError::Damaged("it is cut off");
    let (salt, mut rest) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or_else(cut)?;
    let key = chunk_key(key, salt)?;
    let mut plain = Vec::with_capacity(rest.len());
    for number in 0.. {
        let (chunk, after) = rest.split_at(rest.len().min(CHUNK_BYTES + TAG_BYTES));
        let is_last = after.is_empty();
        let mut chunk = chunk.to_vec();
        let opened = key.open_in_place(nonce(number, is_last), Aad::empty(), &mut chunk);
        let opened =
            opened.map_err(|_| SealError::Damaged("its content is another, or cut off"))?;
        // Only an empty file has an empty chunk, so that there is one encoding of each content.
        if opened.is_empty() && number > 0 {
            return Err(SealError::Damaged("an empty chunk was added"));
        }
        plain.extend_from_slice(opened);
        if is_last {
            break;
        }
        rest = after;
    }
    Ok(plain)
}

fn chunk_key(key: &FileKey, salt: &[u8; NONCE_BYTES]) -> Result<LessSafeKey, SealError> {
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(&**key);
    let okm = prk.expand(&[b"payload"], &CHACHA20_POLY1305);
    let okm = okm.map_err(|_| SealError::Damaged("its key can't be derived"))?;
    Ok(LessSafeKey::new(UnboundKey::from(okm)))
}

/// Returns the nonce of a chunk: eleven bytes of its number, and one that marks the last chunk.
fn nonce(number: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; 12];
    bytes[3..11].copy_from_slice(&number.to_be_bytes());
    bytes[11] = u8::from(is_last);
    Nonce::assume_unique_for_key(bytes)
}
