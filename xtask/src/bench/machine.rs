//! Where and how it was measured.

use std::fs::read_to_string;

/// Says what a reader of the figures must know.
pub(super) fn describe() {
    let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("an unknown processor", |(_, model)| model);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split(' ').take(3).collect();
    let args: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "machine  {model}, {processors} processors, Linux {}, {}",
        kernel.trim(),
        std::env::consts::ARCH
    );
    println!(
        "load     {} (1, 5 and 15 minutes; the figures are of an idle machine if it is near 0)",
        load.join(" ")
    );
    println!("command  cargo xtask {} (release build)", args.join(" "));
}
