//! Keys and values in messages and listings.

use std::fmt::Write;

const SHOWN_MAX: usize = 48;

/// Returns bytes as quoted text if they are printable, and in hexadecimal otherwise. Long text is
/// cut off.
pub fn shown(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).ok();
    match text.filter(|text| text.chars().all(|c| !c.is_control())) {
        Some(text) => {
            let mut shown: String = text.chars().take(SHOWN_MAX).collect();
            let cut = shown.len() < text.len();
            shown = shown.replace('\\', "\\\\").replace('"', "\\\"");
            if cut {
                format!("\"{shown}…\" ({} bytes)", bytes.len())
            } else {
                format!("\"{shown}\"")
            }
        }
        None => {
            let mut shown = "0x".to_owned();
            for byte in bytes.iter().take(SHOWN_MAX / 2) {
                let _ = write!(shown, "{byte:02x}");
            }
            if bytes.len() > SHOWN_MAX / 2 {
                let _ = write!(shown, "… ({} bytes)", bytes.len());
            }
            shown
        }
    }
}
