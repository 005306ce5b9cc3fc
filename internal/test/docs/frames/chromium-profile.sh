# A user-data-dir that can be imported.
mkdir -p ~/.config/chromium/Default
echo '{}' >~/.config/chromium/Default/Preferences
echo '{}' >~/.config/chromium/'Local State'
# the snippet
