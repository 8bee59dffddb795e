//! `tidegate completions` and `tidegate man`.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::{Failure, Outcome, print_line};

pub(crate) fn completions(args: &CompletionsArgs) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "tidegate", &mut text);
    print_line(String::from_utf8_lossy(&text).trim_end());
    Ok(())
}

/// One page of everything, or a page of each command in a directory.
pub(crate) fn man(args: &ManArgs) -> Outcome {
    let cannot = |error: std::io::Error| {
        (Failure::Other, format!("cannot write the manual: {error}; choose another --out"))
    };
    let Some(folder) = &args.out else {
        let mut text = Vec::new();
        Man::new(Args::command()).render(&mut text).map_err(cannot)?;
        print_line(String::from_utf8_lossy(&text).trim_end());
        return Ok(());
    };
    write_pages(folder).map_err(cannot)
}

fn write_pages(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Args::command(), folder)?;
    std::io::stdout().flush()
}
