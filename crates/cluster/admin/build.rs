//! Takes the built book into the program where `SPILLWAY_BOOK` names its folder, as packages do. Each
//! file is compressed once, here.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};

/// Largest number of files: the book has about a hundred, another folder may have all of a disk.
const FILES_MAX: usize = 1_000;

/// Files that Sphinx needs and readers do not.
const LEFT_OUT: [&str; 2] = ["objects.inv", "_sources"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=SPILLWAY_BOOK");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let book = std::env::var_os("SPILLWAY_BOOK").filter(|it| !it.is_empty()).map(PathBuf::from);
    let mut names = Vec::new();
    if let Some(book) = &book {
        println!("cargo::rerun-if-changed={}", book.display());
        files(book, "", &mut names)?;
        if !names.iter().any(|name| name == "README.html") {
            return Err(format!("{} is no built book: run cargo xtask book", book.display()).into());
        }
    }
    // Folders have no order of their own, and builds are the same on all machines.
    names.sort();
    let mut list = "&[\n".to_owned();
    for (at, name) in names.iter().enumerate() {
        let content = fs::read(book.as_deref().unwrap_or_else(|| Path::new("")).join(name))?;
        // Without a time or a name of a machine.
        let mut packed = GzBuilder::new().mtime(0).read(&*content, Compression::best());
        let file = out.join(format!("{at}.gz"));
        std::io::copy(&mut packed, &mut fs::File::create(&file)?)?;
        writeln!(list, "    ({name:?}, include_bytes!({file:?}).as_slice()),")?;
    }
    list.push(']');
    fs::write(out.join("book.rs"), list)?;
    Ok(())
}

/// Adds the names of the files of a folder, below the book's.
fn files(folder: &Path, prefix: &str, names: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|_| "a file name is no text")?;
        if name.starts_with('.') || LEFT_OUT.contains(&&*name) {
            continue;
        }
        let below = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            files(&entry.path(), &format!("{below}/"), names)?;
        } else {
            names.push(below);
        }
        if names.len() > FILES_MAX {
            return Err(format!("{} has too many files for a book", folder.display()).into());
        }
    }
    Ok(())
}
