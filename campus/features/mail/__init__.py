"""E-mail: texts of buildings come in; messages go to the operator's SMTP server, which [mail] names.

`site.feature("mail")` is its state, a Mail; None without the table. `smtp` is its front door.
"""
