//! Where to write the summary of a run or of merged runs, and in which format.

use clap::Args;
use load::{Summary, Times};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments for the output.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArguments {
    /// Write the summary as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json_out_file: Option<PathBuf>,
    /// The format of --json-out-file: memtier_benchmark's, for existing scripts [default: waystage's own, which has
    /// more fields].
    #[arg(help_heading = "Output", long, value_name = "memtier", value_parser = shape, requires = "json_out_file")]
    json_compat: Option<Memtier>,
    /// Write HdrHistogram's percentiles of response times to PREFIX_get.hgrm, PREFIX_set.hgrm and PREFIX_all.hgrm, and
    /// of service times to PREFIX_service_all.hgrm. Write its interval log of every second to PREFIX.hlog.
    #[arg(help_heading = "Output", long, value_name = "PREFIX")]
    hdr_file_prefix: Option<String>,
    /// The percentiles in the table and in the JSON. A percentile with fewer than ten values above it is left out.
    #[arg(help_heading = "Output", long, value_name = "P,P,...", value_delimiter = ',', value_parser = percentile)]
    pub(crate) print_percentiles: Vec<f64>,
}

/// memtier_benchmark's format.
#[derive(Clone, Copy, Debug)]
struct Memtier;

/// The output files. They are created before the run, so that a mistyped path does not waste it.
#[derive(Debug)]
pub(crate) struct OutputFiles(Vec<OutputFile>);

#[derive(Debug)]
struct OutputFile {
    path: PathBuf,
    file: File,
    content: Content,
}

/// The content of a file.
#[derive(Clone, Copy, Debug)]
enum Content {
    Summary,
    Memtier,
    Percentiles(fn(&Summary) -> &Times),
    Intervals,
}

impl OutputFiles {
    pub(crate) fn create(arguments: &OutputArguments) -> Result<OutputFiles, String> {
        let mut files = OutputFiles(Vec::new());
        for (path, content) in wanted(arguments) {
            match create(&path) {
                Ok(file) => files.0.push(OutputFile { path, file, content }),
                Err(line) => {
                    files.discard();
                    return Err(line);
                }
            }
        }
        Ok(files)
    }

    /// Removes the files, because an empty file would look like a result.
    pub(crate) fn discard(self) {
        for OutputFile { path, .. } in self.0 {
            let _ = fs::remove_file(path);
        }
    }

    pub(crate) fn write(self, summary: &Summary) -> Result<(), String> {
        for OutputFile { path, mut file, content } in self.0 {
            match content.of(summary)? {
                Some(text) => file.write_all(text.as_bytes()).map_err(|error| failed(&path, &error))?,
                None => drop(fs::remove_file(path)),
            }
        }
        Ok(())
    }
}

fn wanted(arguments: &OutputArguments) -> Vec<(PathBuf, Content)> {
    let json = if arguments.json_compat.is_some() { Content::Memtier } else { Content::Summary };
    let json = arguments.json_out_file.iter().map(|path| (path.clone(), json));
    let histograms = arguments.hdr_file_prefix.iter().flat_map(|prefix| {
        let contents = [
            ("_get.hgrm", Content::Percentiles(|summary| &summary.operations.get.response)),
            ("_set.hgrm", Content::Percentiles(|summary| &summary.operations.set.response)),
            ("_all.hgrm", Content::Percentiles(|summary| &summary.operations.all.response)),
            ("_service_all.hgrm", Content::Percentiles(|summary| &summary.operations.all.service)),
            (".hlog", Content::Intervals),
        ];
        contents.map(|(ending, content)| (PathBuf::from(format!("{prefix}{ending}")), content))
    });
    json.chain(histograms).collect()
}

/// Creates a file, or returns the reason why it cannot.
pub(crate) fn create(path: &Path) -> Result<File, String> {
    File::create(path).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

impl Content {
    /// The text of the file; none if there is nothing to write.
    fn of(self, summary: &Summary) -> Result<Option<String>, String> {
        match self {
            Content::Summary => summary.to_json().map(Some).map_err(|error| error.to_string()),
            Content::Memtier => load::memtier_json(summary).map(Some),
            Content::Percentiles(times) => load::percentile_text(times(summary)),
            Content::Intervals => load::interval_log(summary).map(Some),
        }
    }
}

fn shape(text: &str) -> Result<Memtier, String> {
    if text == "memtier" { Ok(Memtier) } else { Err(format!("{text:?} is not memtier, the only other format")) }
}

fn percentile(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|percent| *percent > 0.0 && *percent < 100.0);
    number.ok_or_else(|| format!("{text:?} is not a percentile such as 99.9, above 0 and below 100"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_between_0_and_100() {
        assert_eq!((percentile("99.9"), percentile(" 50 ")), (Ok(99.9), Ok(50.0)));
        for text in ["", "0", "100", "-1", "nan", "p99"] {
            assert!(percentile(text).is_err(), "{text}");
        }
    }
}
