"""The forms of reports, one file each: a form is recognised by content and says where its findings, their states and packages stand."""
