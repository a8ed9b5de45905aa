//! Backups: writing, encrypting and reading them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use serde_json::json;
use spillway_files::private;
use zeroize::Zeroizing;

use super::backup_args::{BackupArgs, BackupKeyArgs, PassphraseArgs, RestoreArgs};
use super::seal::{self, Identity, Lock, Passphrase, Unlock};
use crate::cluster::calls::show;
use crate::cluster::client::AdminClient;
use crate::output;

/// Environment variable with the passphrase, used if no file is named.
const VARIABLE: &str = "SPILLWAY_BACKUP_PASSPHRASE";
/// Longest passphrase file, in bytes. A passphrase is one line.
const PASSPHRASE_BYTES_MAX: u64 = 64 << 10;

/// Writes a backup.
pub(crate) async fn backup(args: &BackupArgs) -> Result<()> {
    let file = &args.file;
    if file.exists() && !args.force {
        bail!("{} is there already: give another name, or --force", file.display());
    }
    // Faults of the key show before the node is asked.
    let lock = lock(args)?;
    let client = AdminClient::new(&args.connect)?;
    let mut bytes = client.bytes("/v1/backup").await?;
    if let Some(lock) = &lock {
        bytes = seal::seal(&bytes, lock).context("the backup can't be encrypted")?.into();
    } else if !client.as_json {
        output::note("the backup is not encrypted: it has hashes of keys, tenants and addresses");
    }
    write_whole(file, &bytes).with_context(|| format!("{} can't be written", file.display()))?;
    let is_encrypted = lock.is_some();
    let answer =
        json!({ "ok": true, "file": file, "bytes": bytes.len(), "encrypted": is_encrypted });
    show(&client, &answer, &format!("{}: {} bytes", file.display(), bytes.len()))
}

/// Makes a private key and prints its public key.
pub(crate) fn backup_key(args: &BackupKeyArgs) -> Result<()> {
    let BackupKeyArgs { file, json } = args;
    if file.exists() {
        bail!("{} is there already: give another name", file.display());
    }
    let identity = Identity::new()?;
    write_whole(file, identity.to_file().as_bytes())
        .with_context(|| format!("{} can't be written", file.display()))?;
    let key = identity.recipient().to_string();
    if *json {
        let answer = json!({ "ok": true, "file": file, "public_key": key });
        return Ok(output::line(&answer.to_string())?);
    }
    output::note(&format!("the private key is in {}; its public key:", file.display()));
    Ok(output::line(&key)?)
}

/// Reads a backup, and decrypts it if it is encrypted.
pub(crate) fn read(args: &RestoreArgs) -> Result<Bytes> {
    let RestoreArgs { file, identity, passphrase, .. } = args;
    let bytes = fs::read(file).with_context(|| format!("{} can't be read", file.display()))?;
    if !seal::is_sealed(&bytes) {
        return Ok(bytes.into());
    }
    let mut unlock = Unlock { passphrase: passphrase_of(passphrase)?, identities: Vec::new() };
    for file in identity {
        let text = fs::read_to_string(file).map(Zeroizing::new);
        let text = text.with_context(|| format!("{} can't be read", file.display()))?;
        unlock.identities.extend(Identity::read_all(&text, file)?);
    }
    let plain = seal::open(&bytes, &unlock);
    Ok(plain.with_context(|| format!("{} can't be decrypted", file.display()))?.into())
}

fn lock(args: &BackupArgs) -> Result<Option<Lock>> {
    if !args.encrypt_to.is_empty() {
        return Ok(Some(Lock::Recipients(args.encrypt_to.clone())));
    }
    Ok(passphrase_of(&args.passphrase)?.map(Lock::Passphrase))
}

fn passphrase_of(args: &PassphraseArgs) -> Result<Option<Passphrase>> {
    let text = match &args.passphrase_file {
        Some(file) if file.as_os_str() == "-" => {
            read_line(&mut io::stdin().lock()).context("standard input can't be read")?
        }
        Some(file) => {
            let read = File::open(file).and_then(|mut file| read_line(&mut file));
            read.with_context(|| format!("{} can't be read", file.display()))?
        }
        None => match std::env::var(VARIABLE) {
            Ok(text) => Zeroizing::new(text),
            Err(std::env::VarError::NotPresent) => return Ok(None),
            // The variable is set and is no text: the backup must not go out unencrypted because of
            // that.
            Err(error) => return Err(error).context(VARIABLE),
        },
    };
    // Editors and `echo` end the line with a break that is no part of the passphrase.
    let text = Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned());
    if text.is_empty() {
        bail!("the passphrase is empty");
    }
    Ok(Some(Passphrase(text)))
}

fn read_line(from: &mut dyn Read) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    from.take(PASSPHRASE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Writes a file as a whole and to disk, or not at all. Other users may not read it.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = Path::new(&part);
    let mut file = private::create(part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(part, path)?;
    // A rename outlasts a power failure only once its folder is on disk as well.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}
