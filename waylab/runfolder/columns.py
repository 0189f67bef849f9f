"""The names of columns in data frames and exported files, which no factor may have."""

import re

# Columns of frames that a factor must not hide, and the beginnings and ends of the others.
TAKEN = re.compile(
    "|".join(
        "trial order block configuration role seed used reasons server operation stage percentile second measured "
        "requests count trials run in_window port sequence outcome connection leg is_leg legs loop backend keys hits "
        "backend_port backend_sequence request_bytes reply_bytes queue_length queue_length_mean interactive_law_error "
        r"steady time_scale source_tool source_file (?:database|factor)_\w+ \w+_(?:s|ns|share|ratio|low|high)".split()
    )
)
