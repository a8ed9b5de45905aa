//! Smallest picture that every reader accepts: one colour, not compressed.

/// Returns a PNG of `side` × `side` pixels in one colour. `side` is at most 128, so that the data
/// fit one stored block.
pub(crate) fn square(side: u8, colour: [u8; 3]) -> Vec<u8> {
    let side = side.min(128);
    let mut rows = Vec::new();
    for _ in 0..side {
        let no_filter = [0];
        rows.extend(no_filter);
        rows.extend(colour.repeat(usize::from(side)));
    }
    let size = u32::from(side).to_be_bytes();
    let mut header = Vec::new();
    header.extend(size);
    header.extend(size);
    header.extend([8, 2, 0, 0, 0]); // 8 bits a channel, RGB
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    push_chunk(&mut png, *b"IHDR", &header);
    push_chunk(&mut png, *b"IDAT", &stored_zlib(&rows));
    push_chunk(&mut png, *b"IEND", &[]);
    png
}

fn push_chunk(png: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    png.extend(length.to_be_bytes());
    let start = png.len();
    png.extend(kind);
    png.extend(data);
    let checksum = crc32(&png[start..]);
    png.extend(checksum.to_be_bytes());
}

/// Returns `data` in zlib format, as one stored block.
fn stored_zlib(data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap_or(u16::MAX);
    // Two bytes of zlib header, then the head of a last, stored block.
    let mut stream = vec![0x78, 0x01, 0x01];
    stream.extend(length.to_le_bytes());
    stream.extend((!length).to_le_bytes());
    stream.extend(data);
    stream.extend(adler32(data).to_be_bytes());
    stream
}

fn crc32(data: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 }
        })
    };
    !data.iter().fold(u32::MAX, step)
}

fn adler32(data: &[u8]) -> u32 {
    let (low, high) = data.iter().fold((1_u32, 0_u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_their_published_check_values() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
    }

    #[test]
    fn the_picture_ends_as_every_png_does() {
        let png = square(8, [1, 2, 3]);
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x08"));
        assert!(png.ends_with(b"\0\0\0\0IEND\xAE\x42\x60\x82"));
    }
}
