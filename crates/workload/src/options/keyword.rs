//! fio's reserved words in values: `$pagesize`, `$mb_memory`, `$ncpus`.

use super::arithmetic;

/// Replaces the reserved words in a value, and evaluates it if that makes it an expression:
/// `8*$mb_memory`.
pub(super) fn replace(value: &str) -> String {
    let mut replaced = value.to_owned();
    for (word, number) in
        [("$pagesize", page_size as fn() -> u64), ("$mb_memory", mb_memory), ("$ncpus", cpus)]
    {
        if replaced.contains(word) {
            replaced = replaced.replace(word, &number().to_string());
        }
    }
    if replaced == value {
        return replaced;
    }
    match arithmetic::evaluate(&replaced, |_| None) {
        Ok(number) if number >= 0.0 => format!("{number:.0}"),
        _ => replaced,
    }
}

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

fn mb_memory() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit)) >> 20
}

fn cpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_numbers() {
        assert_eq!(replace("$pagesize"), page_size().to_string());
        assert_eq!(replace("2*$pagesize"), (2 * page_size()).to_string());
        assert_eq!(replace("($ncpus+1)"), (cpus() + 1).to_string());
        assert_eq!(replace("x-$ncpus.dat"), format!("x-{}.dat", cpus()));
        assert_eq!(replace("4*1024"), "4*1024");
        assert!(mb_memory() > 0);
    }
}
