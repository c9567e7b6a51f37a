//! Samples of one figure, and the table that they are shown in.

/// The samples of a figure.
#[derive(Debug)]
pub(super) struct Series {
    name: &'static str,
    unit: &'static str,
    samples: Vec<f64>,
}

impl Series {
    pub(super) fn new(name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            unit,
            samples: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, sample: f64) {
        self.samples.push(sample);
    }

    /// The smallest value that so many quarters of the samples do not exceed.
    fn quartile(&self, quarters: usize) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = (sorted.len() * quarters).div_ceil(4).saturating_sub(1);
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }

    fn median(&self) -> f64 {
        self.quartile(2)
    }
}

/// The first lines of the table.
pub(super) fn heading() {
    println!();
    println!(
        "{:<22} {:>6} {:>10} {:>10} {:>10}  {:<8} {:>7}  of (medians)",
        "figure", "rounds", "25 %", "median", "75 %", "unit", "ratio"
    );
}

/// The lines of a group; the first is the reference of the others.
pub(super) fn show(group: &[Series]) {
    for series in group {
        println!("{}", line(series, &group[0]));
    }
}

fn line(series: &Series, reference: &Series) -> String {
    let (median, base) = (series.median(), reference.median());
    let ratio = if base > 0.0 {
        format!("{:>7.2}", median / base)
    } else {
        format!("{:>7}", "-")
    };
    format!(
        "{:<22} {:>6} {:>10} {:>10} {:>10}  {:<8} {ratio}  {}",
        series.name,
        series.samples.len(),
        short(series.quartile(1)),
        short(median),
        short(series.quartile(3)),
        series.unit,
        reference.name
    )
}

/// Three digits or so.
fn short(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Series, line};

    fn series(name: &'static str, samples: &[f64]) -> Series {
        let mut series = Series::new(name, "ns");
        samples.iter().for_each(|sample| series.push(*sample));
        series
    }

    #[test]
    fn a_line_has_quartiles_and_the_ratio_of_the_medians() {
        let reference = series("clock", &[20.0]);
        let words = |samples: &[f64]| {
            let line = line(&series("mine", samples), &reference);
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            words(&[40.0, 10.0, 30.0, 20.0]),
            "mine 4 10.0 20.0 30.0 ns 1.00 clock"
        );
        assert_eq!(
            words(&[9.0, 300.0, 50.0, 40.0, 60.0]),
            "mine 5 40.0 50.0 60.0 ns 2.50 clock"
        );
    }

    #[test]
    fn there_is_no_ratio_to_nothing() {
        let none = series("idle-flock", &[0.0]);
        assert!(line(&series("idle-lease", &[1.0]), &none).contains(" -  idle-flock"));
    }
}
